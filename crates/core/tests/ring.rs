//! The log ring: bounded for any input, ordered, and read without unreported gaps.

use everwatch_core::clock::Timestamp;
use everwatch_core::epoch::Epoch;
use everwatch_core::wire::logs::{LINE_MAX, Line, LogCursor, Ring, Stream};
use proptest::prelude::*;

fn say(ring: &mut Ring, epoch: Epoch, text: &str, most: u32) {
    ring.push((epoch, Timestamp(0)), Stream::Stdout, text, most);
}

fn texts(lines: &[Line]) -> Vec<&str> {
    lines.iter().map(|line| &*line.text).collect()
}

#[test]
fn the_newest_lines_stay_and_a_follower_learns_what_it_missed() {
    let (mut ring, run) = (Ring::default(), Epoch::new(1, 0));
    for number in 1..=10 {
        say(&mut ring, run, &number.to_string(), 4);
    }
    assert_eq!(texts(&ring.read(None, 2).lines), ["9", "10"]);
    let place = |seq| LogCursor { epoch: run, seq };
    let read = ring.read(Some(place(3)), 2);
    assert_eq!((texts(&read.lines), read.missed, read.more), (vec!["7", "8"], 3, true));
    let read = ring.read(Some(place(8)), 100);
    assert_eq!((texts(&read.lines), read.missed, read.more), (vec!["9", "10"], 0, false));
    assert_eq!(ring.read(Some(place(10)), 100), Default::default());
}

#[test]
fn a_later_run_continues_the_ring_and_earlier_runs_are_ignored() {
    let (mut ring, first, second) = (Ring::default(), Epoch::new(1, 7), Epoch::new(2, 0));
    say(&mut ring, first, "a", 10);
    say(&mut ring, second, "b", 10);
    say(&mut ring, first, "a zombie", 10);
    say(&mut ring, second, "c", 10);
    let all = ring.read(None, 10).lines;
    assert_eq!(texts(&all), ["a", "b", "c"]);
    assert_eq!(
        all.iter().map(|line| line.place.to_string()).collect::<Vec<_>>(),
        ["1.7.1", "2.0.1", "2.0.2"]
    );
    // A reader whose last line is from the first run on another service.
    assert_eq!(texts(&ring.read(Some(LogCursor { epoch: first, seq: 99 }), 10).lines), ["b", "c"]);
}

#[test]
fn only_a_written_cursor_parses() {
    for bad in ["", "1", "1.2", "1.2.x", "1.2.3.4", "-1.0.0", "4294967296.0.1"] {
        assert!(bad.parse::<LogCursor>().unwrap_err().contains("3.2.57"), "{bad}");
    }
}

proptest! {
    #[test]
    fn the_ring_keeps_to_its_bounds_and_reads_every_line_once(
        said in prop::collection::vec((0_u32..4, any::<String>(), 0_usize..6000), 0..200),
        most in 0_u32..40,
        page in 1_usize..9,
    ) {
        let mut ring = Ring::default();
        let mut followed: Vec<LogCursor> = Vec::new();
        let mut missed = 0;
        let mut accepted = 0_u64;
        for (at, (run, text, long)) in said.iter().enumerate() {
            let before = ring.read(None, 1).lines.pop().map(|line| line.place);
            say(&mut ring, Epoch::new(1, *run), &format!("{text}{}", "ü".repeat(*long)), most);
            let all = ring.read(None, usize::MAX).lines;
            prop_assert!(all.windows(2).all(|pair| pair[0].place < pair[1].place));
            prop_assert!(all.len() <= most as usize && all.iter().all(|line| line.text.len() <= LINE_MAX));
            let bytes: usize = all.iter().map(|line| line.text.len()).sum();
            prop_assert!(bytes <= (most as usize * 1024).max(LINE_MAX));
            accepted += u64::from(all.last().map(|line| line.place) != before);
            // A follower that reads occasionally.
            if at % 7 == 0 || at + 1 == said.len() {
                loop {
                    let from = followed.last().copied().unwrap_or(LogCursor { epoch: Epoch::new(0, 0), seq: 0 });
                    let read = ring.read(Some(from), page);
                    missed += read.missed;
                    followed.extend(read.lines.iter().map(|line| line.place));
                    if !read.more {
                        break;
                    }
                }
            }
        }
        prop_assert!(followed.windows(2).all(|pair| pair[0] < pair[1]));
        // Unreported lines are only those of whole runs, or ends of runs, that passed between two reads.
        prop_assert!(followed.len() as u64 + missed <= accepted);
        if said.len() <= most as usize && said.iter().all(|(_, text, long)| text.len() + 2 * long + 64 <= 1024) {
            prop_assert_eq!((followed.len() as u64, missed), (accepted, 0));
        }
    }

    #[test]
    fn a_cursor_round_trips(epoch: u64, seq: u64) {
        let place = LogCursor { epoch: Epoch::from(epoch), seq };
        prop_assert_eq!(place.to_string().parse::<LogCursor>(), Ok(place));
    }
}
