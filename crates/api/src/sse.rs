//! Reads a stream of server-sent events: bytes in, messages out.

/// The longest line, in bytes; an unfinished one that is longer ends the stream.
const LINE_MAX: usize = 1024 * 1024;

/// One message of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// The type of the message; empty if the server names none.
    pub event: String,
    /// The position in the stream, for a client that connects again.
    pub id: Option<String>,
    pub data: String,
}

/// A line of the stream is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the manager sends a line of more than {LINE_MAX} bytes")]
pub struct LineTooLong;

/// What is left of the bytes that have arrived.
#[derive(Debug, Default)]
pub struct Reader {
    unread: Vec<u8>,
    message: Message,
}

impl Reader {
    /// The messages that these bytes complete.
    ///
    /// # Errors
    /// If a line is longer than 1 MiB.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Vec<Message>, LineTooLong> {
        self.unread.extend_from_slice(bytes);
        let mut messages = Vec::new();
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            messages.extend(self.line(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n'])));
        }
        if self.unread.len() > LINE_MAX { Err(LineTooLong) } else { Ok(messages) }
    }

    /// An empty line ends a message; a message without data is none.
    fn line(&mut self, line: &str) -> Option<Message> {
        if line.is_empty() {
            return Some(std::mem::take(&mut self.message)).filter(|message| !message.data.is_empty());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.message.event),
            "id" => self.message.id = Some(value.to_owned()),
            "data" => {
                if !self.message.data.is_empty() {
                    self.message.data.push('\n');
                }
                self.message.data.push_str(value);
            }
            // A comment keeps the connection open; other fields are for browsers.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(event: &str, id: Option<&str>, data: &str) -> Message {
        Message { event: event.to_owned(), id: id.map(str::to_owned), data: data.to_owned() }
    }

    #[test]
    fn a_message_is_read_wherever_its_bytes_are_divided() {
        let stream =
            b": open\n\nevent: line\r\nid: 3\r\ndata: one\r\ndata:two\r\n\r\nretry: 5\n\ndata: three\n\n";
        for at in 0..stream.len() {
            let mut reader = Reader::default();
            let mut read = reader.read(&stream[..at]).unwrap();
            read.extend(reader.read(&stream[at..]).unwrap());
            assert_eq!(read, [message("line", Some("3"), "one\ntwo"), message("", None, "three")], "{at}");
        }
    }

    #[test]
    fn a_line_without_an_end_ends_the_stream() {
        assert_eq!(Reader::default().read(&vec![b'x'; LINE_MAX + 1]), Err(LineTooLong));
        assert_eq!(Reader::default().read(&vec![b'x'; LINE_MAX]), Ok(Vec::new()));
    }
}
