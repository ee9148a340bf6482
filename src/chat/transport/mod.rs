use crate::{
    chat::{error::*, model::*},
    config::*,
};
pub struct HttpModel;
impl HttpModel {
    pub fn new(_: &Llm, _: Secret, _: Limits) -> Result<Self, ChatError> {
        Ok(Self)
    }
}
impl Model for HttpModel {
    fn stream<'a>(&'a self, _r: Request<'_>, _reply: &'a mut Reply) -> ModelStream<'a> {
        Box::pin(futures_lite::stream::empty())
    }
}
