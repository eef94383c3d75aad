//! AMQP 0-9-1 frames, as far as the checker reads them. Knows no connection and no rule.

/// The first bytes that a client sends.
const GREETING: usize = 8;
const METHOD: u8 = 1;
const HEADER: u8 = 2;
/// The bytes of a frame before and after its payload.
const HEAD: usize = 7;
const END: usize = 1;
const FRAME_END: u8 = 0xce;
/// Properties of a message that stand before its delivery mode, and the bit of the delivery mode.
const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const PERSISTENT: u8 = 2;

/// What a frame says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Qos {
        prefetch: u16,
    },
    Consume {
        queue: String,
        tag: String,
        no_ack: bool,
    },
    Publish {
        exchange: String,
        key: String,
        mandatory: bool,
    },
    /// The header of a message that follows [`Said::Publish`] or [`Said::Deliver`].
    Properties {
        persistent: bool,
    },
    Deliver {
        tag: String,
        delivery: u64,
    },
    Get {
        queue: String,
    },
    Ack {
        delivery: u64,
        multiple: bool,
    },
    /// Given back or dropped.
    Reject {
        delivery: u64,
        multiple: bool,
        requeue: bool,
    },
    ConfirmSelect,
    ChannelClosed,
    Other,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) channel: u16,
    pub(super) said: Said,
    /// Its bytes, head and end included.
    pub(super) length: usize,
}

/// The length of the client's greeting, if these bytes begin with one.
pub(super) fn greeting(bytes: &[u8]) -> Option<usize> {
    (bytes.len() >= GREETING && bytes.starts_with(b"AMQP")).then_some(GREETING)
}

/// The first frame of these bytes, once it is complete.
pub(super) fn first(bytes: &[u8]) -> Option<Frame> {
    let mut head = Fields(bytes);
    let (kind, channel, size) = (head.u8()?, head.u16()?, head.u32()? as usize);
    let length = HEAD + size + END;
    let payload = bytes.get(..length)?.get(HEAD..HEAD + size)?;
    let said = match kind {
        METHOD => method(payload),
        HEADER => properties(payload),
        _ => None,
    };
    Some(Frame { channel, said: said.unwrap_or(Said::Other), length })
}

/// The frame with which a broker closes a channel.
pub(super) fn channel_close(channel: u16, code: u16, text: &str) -> Vec<u8> {
    let text = text.as_bytes().get(..text.len().min(255)).unwrap_or_default();
    let mut payload = vec![0, 20, 0, 40];
    payload.extend(code.to_be_bytes());
    payload.push(u8::try_from(text.len()).unwrap_or_default());
    payload.extend(text);
    // No method of the client is the cause.
    payload.extend([0; 4]);
    let mut frame = vec![METHOD];
    frame.extend(channel.to_be_bytes());
    frame.extend(u32::try_from(payload.len()).unwrap_or_default().to_be_bytes());
    frame.extend(payload);
    frame.push(FRAME_END);
    frame
}

fn method(payload: &[u8]) -> Option<Said> {
    let mut fields = Fields(payload);
    Some(match (fields.u16()?, fields.u16()?) {
        (20, 40 | 41) => Said::ChannelClosed,
        (60, 10) => {
            fields.u32()?;
            Said::Qos { prefetch: fields.u16()? }
        }
        (60, 20) => {
            fields.u16()?;
            let (queue, tag) = (fields.text()?, fields.text()?);
            Said::Consume { queue, tag, no_ack: fields.u8()? & 2 != 0 }
        }
        (60, 40) => {
            fields.u16()?;
            let (exchange, key) = (fields.text()?, fields.text()?);
            Said::Publish { exchange, key, mandatory: fields.u8()? & 1 != 0 }
        }
        (60, 60) => Said::Deliver { tag: fields.text()?, delivery: fields.u64()? },
        (60, 70) => {
            fields.u16()?;
            Said::Get { queue: fields.text()? }
        }
        (60, 80) => Said::Ack { delivery: fields.u64()?, multiple: fields.u8()? & 1 != 0 },
        (60, 90) => Said::Reject { delivery: fields.u64()?, multiple: false, requeue: fields.u8()? & 1 != 0 },
        (60, 120) => {
            let (delivery, bits) = (fields.u64()?, fields.u8()?);
            Said::Reject { delivery, multiple: bits & 1 != 0, requeue: bits & 2 != 0 }
        }
        (85, 10) => Said::ConfirmSelect,
        _ => Said::Other,
    })
}

fn properties(payload: &[u8]) -> Option<Said> {
    let mut fields = Fields(payload);
    // Class, weight and size of the body.
    fields.skip(2 + 2 + 8)?;
    let flags = fields.u16()?;
    for text in [CONTENT_TYPE, CONTENT_ENCODING] {
        if flags & text != 0 {
            fields.text()?;
        }
    }
    if flags & HEADERS != 0 {
        let size = fields.u32()? as usize;
        fields.skip(size)?;
    }
    Some(Said::Properties { persistent: flags & DELIVERY_MODE != 0 && fields.u8()? == PERSISTENT })
}

/// Reads fields one after the other; `None` at the end of the bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }
    fn skip(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (skipped, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(skipped)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_be_bytes)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
    fn text(&mut self) -> Option<String> {
        let length = usize::from(self.u8()?);
        Some(String::from_utf8_lossy(self.skip(length)?).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[kind, 0, 7][..], &size[..], payload, &[0xce][..]].concat()
    }

    #[test]
    fn a_frame_is_read_once_it_is_complete() {
        let ack = frame(METHOD, &[0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 0, 9, 1]);
        let read = Frame { channel: 7, said: Said::Ack { delivery: 9, multiple: true }, length: ack.len() };
        assert_eq!(first(&ack), Some(read.clone()));
        assert_eq!(first(&[&ack[..], b"more"].concat()), Some(read));
        assert!((0..ack.len()).all(|length| first(&ack[..length]).is_none()));
    }

    #[test]
    fn methods_and_properties_are_read_and_others_are_passed_over() {
        let consume = [&[0, 60, 0, 20, 0, 0, 4][..], b"work", &[3], b"tag", &[2, 0, 0, 0, 0]].concat();
        let said = |payload: &[u8], kind| first(&frame(kind, payload)).unwrap().said;
        let read = Said::Consume { queue: "work".to_owned(), tag: "tag".to_owned(), no_ack: true };
        assert_eq!(said(&consume, METHOD), read);
        let header = [&[0, 60, 0, 0][..], &[0; 8], &[0b1001_0000, 0], &[1], b"x", &[2]].concat();
        assert_eq!(said(&header, HEADER), Said::Properties { persistent: true });
        assert_eq!(said(&[0, 10, 0, 10], METHOD), Said::Other);
        let close = channel_close(7, 406, "PRECONDITION_FAILED");
        let read = Frame { channel: 7, said: Said::ChannelClosed, length: close.len() };
        assert_eq!(first(&close), Some(read));
        assert_eq!(said(&[0, 60, 0, 80, 0], METHOD), Said::Other, "too short");
        assert_eq!(greeting(b"AMQP\x00\x00\x09\x01rest"), Some(8));
        assert_eq!(greeting(&frame(METHOD, &[])), None);
    }
}
