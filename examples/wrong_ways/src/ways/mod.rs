//! The wrong ways, one a file.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use anyhow::{Context, Result};

use crate::harm::Row;
use crate::stage::Stage;

pub mod d01;
pub mod d02;
mod d03;
mod d04;
mod d05;
mod d06;
mod d07;
mod d08;
mod d09;
mod d10;
mod d11;
pub mod d12;

type Shown<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>>> + Send + 'a>>;

/// One wrong way, with all of its schedules.
#[derive(Clone, Copy)]
pub struct Way {
    pub number: &'static str,
    run: fn(&Stage) -> Shown<'_>,
}

impl Way {
    /// An error means that the fault did not happen, or that the right way did harm too.
    pub async fn show(&self, stage: &Stage) -> Result<Vec<Row>> {
        (self.run)(stage).await.context(self.number)
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.number)
    }
}

pub const ALL: [Way; 12] = [
    Way { number: "D1", run: |stage| Box::pin(d01::show(stage)) },
    Way { number: "D2", run: |stage| Box::pin(d02::show(stage)) },
    Way { number: "D3", run: |stage| Box::pin(d03::show(stage)) },
    Way { number: "D4", run: |stage| Box::pin(d04::show(stage)) },
    Way { number: "D5", run: |stage| Box::pin(d05::show(stage)) },
    Way { number: "D6", run: |stage| Box::pin(d06::show(stage)) },
    Way { number: "D7", run: |stage| Box::pin(d07::show(stage)) },
    Way { number: "D8", run: |stage| Box::pin(d08::show(stage)) },
    Way { number: "D9", run: |stage| Box::pin(d09::show(stage)) },
    Way { number: "D10", run: |stage| Box::pin(d10::show(stage)) },
    Way { number: "D11", run: |stage| Box::pin(d11::show(stage)) },
    Way { number: "D12", run: |stage| Box::pin(d12::show(stage)) },
];
