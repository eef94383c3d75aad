//! Reads the version from the greeting that a broker sends before the login. lapin reads the same greeting
//! but does not expose it.

use super::TlsFiles;
use amq_protocol::frame::{AMQPFrame, parse_frame};
use amq_protocol::protocol::{AMQPClass, connection};
use futures::{AsyncReadExt, AsyncWriteExt};
use lapin::types::AMQPValue;
use lapin::uri::AMQPUri;
use std::io;

const HELLO: &[u8] = b"AMQP\x00\x00\x09\x01";
/// The greeting of RabbitMQ is shorter than 600 bytes.
const GREETING_MAX: usize = 64 * 1024;

/// Connects, reads the greeting, and disconnects.
pub(super) async fn of(
    node: &AMQPUri,
    tls: &TlsFiles,
    runtime: &async_rs::Runtime<async_rs::Tokio>,
) -> io::Result<Option<String>> {
    let mut stream = tls.connect(node, runtime).await?;
    stream.write_all(HELLO).await?;
    stream.flush().await?;
    let mut head = [0; 7];
    stream.read_exact(&mut head).await?;
    let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
    if size > GREETING_MAX {
        return Ok(None);
    }
    let mut frame = head.to_vec();
    frame.resize(head.len() + size + 1, 0);
    stream.read_exact(&mut frame[head.len()..]).await?;
    Ok(match parse_frame(frame.as_slice()) {
        Ok((_, AMQPFrame::Method(_, AMQPClass::Connection(connection::AMQPMethod::Start(start))))) => {
            match start.server_properties.inner().get("version") {
                Some(AMQPValue::LongString(version)) => Some(version.to_string()),
                _ => None,
            }
        }
        _ => None,
    })
}
