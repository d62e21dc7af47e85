//! Connections between hosts beside a router, and waiting until they are forwarded past its rules.
use super::adopting::{Net, by_kernel, by_kernel6};
use super::{SOON, until_seen};
use artery_rig::{Host, Process, Result};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, sendto, socket};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};

/// A connection over which each end has answered the other.
pub struct Connection {
    pub near: TcpStream,
    pub far: TcpStream,
}

impl Connection {
    pub fn open(client: &Host, server: &Host, listen: SocketAddr, to: SocketAddr) -> Result<Connection> {
        let listener = server.enter(|| TcpListener::bind(listen))?.expect("a listener");
        let near = client.enter(|| TcpStream::connect_timeout(&to, SOON))?.expect("a connection");
        let (far, _) = listener.accept().expect("the other end");
        for stream in [&near, &far] {
            stream.set_nodelay(true).expect("no delay");
            stream.set_read_timeout(Some(SOON)).expect("a timeout");
        }
        Ok(Connection { near, far })
    }

    /// Sends messages both ways, each of another length.
    pub fn exchange(&self, rounds: usize) {
        let message: Vec<u8> = (0..1400_u32).map(|byte| (byte * 7) as u8).collect();
        let mut buffer = vec![0; message.len()];
        for round in 0..rounds {
            let length = 1 + round * 13 % message.len();
            for (mut from, mut to) in [(&self.near, &self.far), (&self.far, &self.near)] {
                from.write_all(&message[..length]).expect("it is sent");
                to.read_exact(&mut buffer[..length]).expect("it arrives");
                assert_eq!(buffer[..length], message[..length]);
            }
        }
    }
}

/// Two hosts that send each other datagrams.
pub struct Datagrams {
    pub near: UdpSocket,
    pub far: UdpSocket,
    to: SocketAddr,
}

impl Datagrams {
    pub fn open(a: &Host, b: &Host, to: SocketAddr) -> Result<Datagrams> {
        let any =
            |port: u16| SocketAddr::new(if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() }, port);
        let far = b.enter(|| UdpSocket::bind(any(to.port())))?.expect("a socket");
        let near = a.enter(|| UdpSocket::bind(any(0)))?.expect("a socket");
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(SOON)).expect("a timeout");
        }
        Ok(Datagrams { near, far, to })
    }

    /// Sends datagrams there and back, each of another length; returns the source that the far host saw.
    pub fn exchange(&self, rounds: usize) -> IpAddr {
        let (mut buffer, mut source) = ([0; 2000], None);
        for round in 0..rounds {
            let message = vec![round as u8; 1 + round * 11 % 1400];
            self.near.send_to(&message, self.to).expect("it is sent");
            let (length, from) = self.far.recv_from(&mut buffer).expect("it arrives");
            assert_eq!(buffer[..length], message);
            self.far.send_to(&message, from).expect("it is sent");
            let (length, _) = self.near.recv_from(&mut buffer).expect("it arrives");
            assert_eq!(buffer[..length], message);
            source = Some(from.ip());
        }
        source.expect("there is a round")
    }
}

/// Has the kernel forget all connections of a host, as `conntrack -F` does.
pub fn flush_connections(host: &Host) -> Result<()> {
    /// IPCTNL_MSG_CT_DELETE, with NLM_F_REQUEST and NLM_F_ACK, for all families.
    const DELETE_ALL: [u16; 10] = [20, 0, 1 << 8 | 2, 1 | 4, 0, 0, 0, 0, 0, 0];
    let message: Vec<u8> = DELETE_ALL.iter().flat_map(|half| half.to_ne_bytes()).collect();
    host.enter(|| {
        let socket =
            socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::NETFILTER)).expect("netlink");
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        sendto(&socket, &message, SendFlags::empty(), &kernel).expect("it is sent");
        let mut answer = [0; 64];
        let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty()).expect("an answer");
        assert!(length >= 20 && answer[16..20] == [0; 4], "{answer:?}");
    })
}

/// Exchanges until few packets go by the kernel.
pub fn until_fast(net: &Net, router: &Process, exchange: &mut dyn FnMut(usize)) -> Result<()> {
    until_seen(router, "packets that go past the kernel", || {
        let both = || -> Result<u64> { Ok(by_kernel(&net.r)? + by_kernel6(&net.r)?) };
        let before = both()?;
        exchange(20);
        Ok(both()? < before + 3)
    })
}
