//! How HTTP clients are let in: a server that bounds what one client and all clients together may hold open
//! ([`serve`]), which requests a web page of elsewhere may not make ([`hosts`]), and what a JSON body may
//! contain before it is parsed ([`json`]).

pub mod hosts;
pub mod json;
pub mod seats;
pub mod serve;
