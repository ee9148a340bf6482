//! stand-in
#![allow(missing_docs)]
pub const NOTICE: &str = "";
pub enum Answers {
    Assistant,
}
pub struct Server;
impl Server {
    pub fn bind(_p: u16, _a: Answers) -> std::io::Result<Self> {
        Ok(Self)
    }
    pub fn port(&self) -> u16 {
        0
    }
    pub async fn serve(&self) {}
}
