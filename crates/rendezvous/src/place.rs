//! Where the processes of a job meet.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::MeetError;

/// Where the processes of a job meet. As text `tcp://HOST:PORT` or `file:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Rank 0 listens there, at the first of the ports that is free; the others try them all.
    Tcp {
        /// A name, or an address.
        host: String,
        /// At least one, none of them 0.
        ports: Vec<u16>,
    },
    /// Rank 0 listens where the system gives it a port, and writes that to a file that all processes see.
    File(PathBuf),
}

/// A text that names no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no place to meet: {why}; write tcp://HOST:PORT, or file:PATH on a file system that all processes share"
)]
pub struct PlaceError {
    text: String,
    why: &'static str,
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Place, PlaceError> {
        let wrong = |why| PlaceError { text: text.to_string(), why };
        if let Some(path) = text.strip_prefix("file:") {
            // `file:///a` is the URL of `/a`.
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(wrong("it has no path")) } else { Ok(Place::File(path.into())) };
        }
        let rest = text.strip_prefix("tcp://").ok_or_else(|| wrong("it begins with neither"))?;
        let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong("it has no port"))?;
        let port: u16 = port.parse().map_err(|_| wrong("its port is no number up to 65535"))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_none() && host.contains(':') {
            return Err(wrong("an IPv6 address stands in brackets"));
        }
        let host = bare.unwrap_or(host);
        match port {
            0 => Err(wrong("port 0 is none that others could find")),
            _ if host.is_empty() => Err(wrong("it has no host")),
            _ => Ok(Place::Tcp { host: host.to_string(), ports: vec![port] }),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(path) => write!(f, "file:{}", path.display()),
            Place::Tcp { host, ports } => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "tcp://{open}{host}{close}:")?;
                match &ports[..] {
                    [port] => write!(f, "{port}"),
                    [first, .., last] => write!(f, "{first} to {last}"),
                    [] => Ok(()),
                }
            }
        }
    }
}

impl Place {
    /// The addresses that a member tries, in order.
    pub(crate) fn addresses(host: &str, ports: &[u16]) -> Result<Vec<SocketAddr>, MeetError> {
        let unknown = |reason: String| MeetError::Unknown { host: host.to_string(), reason };
        let hosts: Vec<IpAddr> = (host, 0)
            .to_socket_addrs()
            .map_err(|error| unknown(error.to_string()))?
            .map(|address| address.ip())
            .collect();
        if hosts.is_empty() {
            return Err(unknown("it has no address".to_string()));
        }
        Ok(ports.iter().flat_map(|&port| hosts.iter().map(move |&ip| SocketAddr::new(ip, port))).collect())
    }

    /// Where rank 0 listens for a host: at an address that is written as one, or for `localhost`, there alone. A name may stand for
    /// other addresses here than elsewhere, and Debian's own name of a host stands for a loopback address: so for a name it is all
    /// interfaces.
    fn interface(host: &str) -> Result<IpAddr, MeetError> {
        if let Ok(ip) = host.parse() {
            return Ok(ip);
        }
        let first = Place::addresses(host, &[0])?.first().map(SocketAddr::ip);
        Ok(match first {
            Some(ip) if host == "localhost" => ip,
            Some(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        })
    }

    /// Listens for a host, at the first of the ports that is free.
    pub(crate) fn listen(&self, host: &str, ports: &[u16]) -> Result<TcpListener, MeetError> {
        let ip = Place::interface(host)?;
        let mut last = None;
        for &port in ports {
            match TcpListener::bind((ip, port)) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
        let error = last.unwrap_or_else(|| io::ErrorKind::InvalidInput.into());
        let reason = match error.kind() {
            io::ErrorKind::AddrInUse if ports.len() > 1 => "all these ports are in use".to_string(),
            io::ErrorKind::AddrInUse => "the port is in use: by another job, or another program".to_string(),
            io::ErrorKind::AddrNotAvailable => format!(
                "{ip} is no address of this machine, which is {}; name one that is rank 0's",
                crate::host::name()
            ),
            _ => error.to_string(),
        };
        Err(MeetError::Listen { address: self.to_string(), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_through_text_and_back() {
        for text in ["tcp://node-1:29500", "tcp://10.0.0.1:1", "tcp://[::1]:65535", "file:/shared/job"] {
            let place: Place = text.parse().unwrap();
            assert_eq!(place.to_string(), text);
        }
        assert_eq!("file:///a/b".parse(), Ok(Place::File("/a/b".into())));
        let many = Place::Tcp { host: "h".into(), ports: vec![7, 8, 9] };
        assert_eq!(many.to_string(), "tcp://h:7 to 9");
    }

    #[test]
    fn what_names_no_place_says_why() {
        for (text, why) in [
            ("", "begins with neither"),
            ("node:1", "begins with neither"),
            ("tcp://node", "has no port"),
            ("tcp://node:x", "no number up to 65535"),
            ("tcp://node:65536", "no number up to 65535"),
            ("tcp://node:0", "port 0"),
            ("tcp://:1", "no host"),
            ("tcp://::1:1", "in brackets"),
            ("file:", "no path"),
        ] {
            let error = text.parse::<Place>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("write tcp://HOST:PORT, or file:PATH"), "{error}");
        }
    }

    #[test]
    fn an_address_of_another_machine_and_a_port_in_use_are_named() {
        let place = |text: &str| text.parse::<Place>().unwrap();
        let elsewhere = place("tcp://192.0.2.7:4000").listen("192.0.2.7", &[4000]).unwrap_err().to_string();
        assert!(elsewhere.contains("192.0.2.7 is no address of this machine"), "{elsewhere}");
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = held.local_addr().unwrap().port();
        let text = format!("tcp://127.0.0.1:{port}");
        let error = place(&text).listen("127.0.0.1", &[port]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("rank 0 cannot listen at {text}: the port is in use")), "{error}");
    }
}
