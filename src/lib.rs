//! Redisson-style pub/sub waiting locks for Tokio.
