//! Round trips of messages over loopback TCP: two threads, each with a ring, and plain blocking
//! sockets beside them.
//!
//! A server thread sends back every byte; the main thread keeps a number of messages outstanding.
//! Run it several times in turn (`--pairs`): on a busy machine only figures of the same minute can
//! be compared.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::time::Instant;

use zonda_ring::{Address, Backend, Bytes, BytesMut, Client, Done, Operation, Outcome, Ring, RingOptions, Socket};
use zonda_zoned::Duration;

const HELP: &str = "\
Round trips of messages over loopback TCP, on every backend.

usage: echo [--size BYTES] [--depth N] [--messages N] [--pairs N] [--spin MICROSECONDS] [--only BACKEND]

  --size BYTES           bytes of a message (4096)
  --depth N              messages outstanding (1)
  --messages N           messages of one run (100000)
  --pairs N              runs of each backend, one after the other (3)
  --spin MICROSECONDS    poll for so long before sleeping (0)
  --only BACKEND         io_uring, epoll or blocking
";

/// Buffer size of a receive.
const RECEIVE_BYTES: usize = 256 << 10;

struct Load {
    size: usize,
    depth: usize,
    messages: usize,
    spin: Duration,
}

fn main() -> io::Result<()> {
    let mut load = Load { size: 4096, depth: 1, messages: 100_000, spin: Duration::ZERO };
    let (mut pairs, mut only) = (3, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--help" || name == "-h" {
            print!("{HELP}");
            return Ok(());
        }
        let value = arguments.next().ok_or_else(|| usage(&format!("{name} needs a value")))?;
        let number = || value.parse::<usize>().map_err(|_| usage(&format!("{name} {value}: expected a number")));
        match name.as_str() {
            "--size" => load.size = number()?.max(1),
            "--depth" => load.depth = number()?.max(1),
            "--messages" => load.messages = number()?.max(1),
            "--pairs" => pairs = number()?,
            "--spin" => load.spin = Duration::from_micros(number()? as u64),
            "--only" => only = Some(value),
            _ => return Err(usage(&format!("unknown option {name}"))),
        }
    }
    println!("{} messages of {} bytes, {} outstanding", load.messages, load.size, load.depth);
    for _ in 0..pairs {
        for (name, backend) in
            [("blocking", None), ("io_uring", Some(Backend::IoUring)), ("epoll", Some(Backend::Epoll))]
        {
            if only.as_deref().is_some_and(|only| only != name) {
                continue;
            }
            let started = Instant::now();
            let result = match backend {
                None => blocking(&load),
                Some(backend) => over_rings(&load, backend),
            };
            let nanoseconds = started.elapsed().as_nanos() as usize;
            match result {
                Ok(()) => println!(
                    "{name:>9} {:8.2} us a round trip {:9} messages/s",
                    nanoseconds as f64 * load.depth as f64 / load.messages as f64 / 1e3,
                    load.messages * 1_000_000_000 / nanoseconds.max(1)
                ),
                Err(error) => println!("{name:>9} {error}"),
            }
        }
    }
    Ok(())
}

fn usage(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what}; see --help"))
}

fn over_rings(load: &Load, backend: Backend) -> io::Result<()> {
    let options = RingOptions { spin: load.spin, ..RingOptions::on(backend) };
    let ring = Ring::new(options.clone())?;
    let client = ring.client();
    let listener = Socket::listen(&Address::Tcp(([127, 0, 0, 1], 0).into()))?;
    let address = listener.local_address()?;
    let server = std::thread::spawn(move || serve(options, listener));
    client.submit(0, Operation::Connect { address });
    let Outcome::Connected(socket) = next(&ring, &client)?.result? else { panic!("a connect connects") };
    let socket = Rc::new(socket);
    socket.set_no_delay(true)?;
    let message = Bytes::from(vec![7; load.size]);
    let (mut unsent, mut left) = (load.messages, load.messages * load.size);
    let send = |count: usize| {
        let pieces = vec![message.clone(); count];
        client.submit(1, Operation::Send { socket: Rc::clone(&socket), pieces });
    };
    let receive = |buffer| client.submit(2, Operation::Receive { socket: Rc::clone(&socket), buffer });
    let first = load.depth.min(unsent);
    unsent -= first;
    send(first);
    receive(BytesMut::with_capacity(RECEIVE_BYTES));
    while left > 0 {
        let Outcome::Received(mut buffer) = next(&ring, &client)?.result? else { continue };
        let before = left.div_ceil(load.size);
        left -= buffer.len();
        let answered = (before - left.div_ceil(load.size)).min(unsent);
        if answered > 0 {
            unsent -= answered;
            send(answered);
        }
        buffer.clear();
        receive(buffer);
    }
    drop(client);
    drop(ring);
    drop(socket);
    server.join().expect("the server does not panic")
}

/// Sends back what it receives, until the end of the stream.
fn serve(options: RingOptions, listener: Socket) -> io::Result<()> {
    let ring = Ring::new(options)?;
    let client = ring.client();
    client.submit(0, Operation::Accept(Rc::new(listener)));
    let Outcome::Accepted(socket) = next(&ring, &client)?.result? else { panic!("an accept accepts") };
    let socket = Rc::new(socket);
    socket.set_no_delay(true)?;
    let receive = |mut buffer: BytesMut| {
        buffer.reserve(RECEIVE_BYTES);
        client.submit(2, Operation::Receive { socket: Rc::clone(&socket), buffer });
    };
    receive(BytesMut::new());
    loop {
        let Outcome::Received(mut buffer) = next(&ring, &client)?.result? else { continue };
        if buffer.is_empty() {
            return Ok(());
        }
        let pieces = vec![buffer.split().freeze()];
        client.submit(1, Operation::Send { socket: Rc::clone(&socket), pieces });
        receive(buffer);
    }
}

fn next(ring: &Ring, client: &Client) -> io::Result<Done> {
    loop {
        if let Some(done) = client.next() {
            return Ok(done);
        }
        ring.run_once(None)?;
    }
}

fn blocking(load: &Load) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = std::thread::spawn(move || -> io::Result<()> {
        let (mut socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        let mut buffer = vec![0; RECEIVE_BYTES];
        loop {
            match socket.read(&mut buffer)? {
                0 => return Ok(()),
                count => socket.write_all(&buffer[..count])?,
            }
        }
    });
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let burst = vec![7; load.size * load.depth];
    let mut buffer = vec![0; RECEIVE_BYTES];
    let (mut unsent, mut left) = (load.messages, load.messages * load.size);
    let mut answered = load.depth;
    while left > 0 {
        let count = answered.min(unsent);
        unsent -= count;
        socket.write_all(&burst[..count * load.size])?;
        let before = left.div_ceil(load.size);
        left -= socket.read(&mut buffer)?;
        answered = before - left.div_ceil(load.size);
    }
    drop(socket);
    server.join().expect("the server does not panic")
}
