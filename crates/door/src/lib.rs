//! Protects HTTP listeners: a server limits what one client and all clients together may hold open
//! ([`serve`], [`quota`]), over TLS if it has a certificate ([`tls`]), and how many requests one client sends in a second ([`rate`]), web pages of other sites may
//! not make requests ([`hosts`]), and the size of a JSON body is checked before it is parsed ([`json`]).

pub mod hosts;
pub mod json;
pub mod quota;
pub mod rate;
pub mod serve;
pub mod tls;
