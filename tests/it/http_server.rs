//! An HTTP server on the loopback for tests: answers in the pieces it is told to, and can cut an answer short.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which play the host")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The path with its query.
    pub(crate) path: String,
    /// Header lines, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// One answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Sent one by one, each flushed.
    pub(crate) pieces: Vec<Vec<u8>>,
    /// Close before the end that the headers promise.
    pub(crate) cut: bool,
    /// After the last piece, say nothing more and leave the connection open until the client closes it.
    pub(crate) hold: bool,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), pieces: vec![body.into()], cut: false, hold: false }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn in_pieces(mut self, size: usize) -> Self {
        self.pieces = self.pieces.concat().chunks(size).map(<[u8]>::to_vec).collect();
        self
    }

    pub(crate) fn hold(mut self) -> Self {
        self.hold = true;
        self
    }

    pub(crate) fn cut(mut self) -> Self {
        self.cut = true;
        self
    }
}

/// A server that lives until the test process ends.
pub(crate) struct Server {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers each request with what `answer` gives.
    pub(crate) fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (record, answer) = (seen.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (record, answer) = (record.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &record, &*answer));
            }
        });
        Self { url, seen }
    }

    /// Answers with each reply once, in order, then with 599.
    pub(crate) fn script(replies: Vec<Reply>) -> Self {
        let replies = Mutex::new(std::collections::VecDeque::from(replies));
        Self::start(move |_| replies.lock().unwrap().pop_front().unwrap_or_else(|| Reply::new(599, "no more replies")))
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, record: &Mutex<Vec<Request>>, answer: &dyn Fn(&Request) -> Reply) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let path = line.split(' ').nth(1).unwrap_or("").to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.trim().split_once(':') {
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let length =
        headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let request = Request { path, headers, body };
    record.lock().unwrap().push(request.clone());
    let reply = answer(&request);
    let total: usize = reply.pieces.iter().map(Vec::len).sum::<usize>() + usize::from(reply.cut || reply.hold);
    let mut head = format!("HTTP/1.1 {} X\r\ncontent-length: {total}\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    // The client may be gone: that is its right.
    let _ = stream.write_all(head.as_bytes());
    for piece in &reply.pieces {
        let _ = stream.write_all(piece).and_then(|()| stream.flush());
    }
    if reply.hold {
        // Ends when the client goes away.
        let _ = reader.read_to_end(&mut Vec::new());
    }
}
