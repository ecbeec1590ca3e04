//! The servers that the ways run on, and the clients that they ask for.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use mysql_async::OptsBuilder;
use parklock::{Client, Config};
use private_servers::{MariaDb, Medium, Persistence, Postgres, Program, Redis, Server};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio_postgres::NoTls;

use crate::store::Store;
use crate::victim::Victim;

/// With this variable, a database that is missing is an error.
const REQUIRE: &str = "PARKLOCK_REQUIRE_DATABASES";

/// Servers of our own. The databases start when a way first asks for them.
#[derive(Debug)]
pub struct Stage {
    redis: Server,
    postgres: OnceCell<Option<Server>>,
    mariadb: OnceCell<Option<Server>>,
    /// This program, to run victims in processes of their own.
    program: PathBuf,
}

impl Stage {
    pub async fn set(program: PathBuf) -> Result<Self> {
        let redis =
            spawn_blocking(|| Server::start(Box::new(Redis(Persistence::None)), Medium::Disk))
                .await??;
        Ok(Self { redis, postgres: OnceCell::new(), mariadb: OnceCell::new(), program })
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.redis.address())
    }

    /// A connection of its own, as a process of its own has one.
    pub async fn store(&self) -> Result<Store> {
        Store::connect(&self.url()).await
    }

    /// A client of parklock with the default lease of thirty seconds.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::connect(self.url()).await?)
    }

    /// One whose locks outlive a silent holder by this time.
    pub async fn client_with(&self, lease: Duration) -> Result<Client> {
        let config = Config::default().watchdog_timeout(lease);
        Ok(Client::connect_with(self.url(), config).await?)
    }

    /// A process that takes the lock `name` in the way `way`, and has come to the point where it is to be killed.
    pub async fn victim(&self, way: &str, url: &str, name: &str) -> Result<Victim> {
        Victim::start(&self.program, way, url, name).await
    }

    /// A session of PostgreSQL; `None` if it is not installed.
    pub async fn postgres(&self) -> Result<Option<tokio_postgres::Client>> {
        let Some(url) = self.postgres_url().await? else { return Ok(None) };
        Ok(Some(connect_postgres(&url).await?))
    }

    pub async fn postgres_url(&self) -> Result<Option<String>> {
        let server = self.postgres.get_or_try_init(|| start(Postgres)).await?;
        let url = |server: &Server| {
            format!("host=127.0.0.1 port={} user=root dbname=postgres", server.port())
        };
        Ok(server.as_ref().map(url))
    }

    /// A session of MariaDB; `None` if it is not installed.
    pub async fn mariadb(&self) -> Result<Option<mysql_async::Conn>> {
        let server = self.mariadb.get_or_try_init(|| start(MariaDb)).await?;
        let Some(server) = server else { return Ok(None) };
        let options = OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(server.port())
            .user(Some("root"))
            .db_name(Some("test"))
            .prefer_socket(false);
        Ok(Some(mysql_async::Conn::new(options).await?))
    }
}

/// A session; its connection is a task of its own.
pub async fn connect_postgres(url: &str) -> Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn start(program: impl Program + 'static) -> Result<Option<Server>> {
    if program.is_here() {
        let started = spawn_blocking(|| Server::start(Box::new(program), Medium::Disk)).await?;
        return Ok(Some(started?));
    }
    let (name, package) = (program.name(), program.package());
    let missing = format!("{name} is not installed: `apt-get install {package}`");
    ensure!(env::var_os(REQUIRE).is_none(), "{missing}");
    eprintln!("left out: {missing}");
    Ok(None)
}
