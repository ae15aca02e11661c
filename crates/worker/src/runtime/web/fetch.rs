//! The native part of `fetch`. Each exchange has an id and ends when it is closed.

use std::rc::Rc;

use bytes::Bytes;
use rquickjs::function::{Async, Func};
use rquickjs::{Ctx, Function, Object, Result};

use super::Options;
use super::binary::Binary;
use super::bodies::Bodies;
use super::exchange::{BodyChunk, FetchRequest, FetchResult, ResponseHead};
use crate::runtime::alive::KeepAlive;
use crate::runtime::http::{BodyError, Client, HttpResponse, ResponseBody};

/// The state that the native functions of `fetch` share.
struct Web {
    client: Client,
    alive: KeepAlive,
    bodies: Bodies,
}

pub(super) fn natives<'js>(ctx: &Ctx<'js>, natives: &Object<'js>, options: &Options) -> Result<()> {
    let (client, alive) = (Client::new(options.broker), options.alive.clone());
    let web = Rc::new(Web { client, alive, bodies: Bodies::default() });
    let own = Rc::clone(&web);
    natives.set("exchange", Func::from(move || own.bodies.open()))?;
    let own = Rc::clone(&web);
    natives.set("close", Func::from(move |id: u32| own.bodies.close(id)))?;
    let own = Rc::clone(&web);
    natives.set("bodyOpen", Func::from(move |id: u32| own.bodies.stream(id)))?;
    let own = Rc::clone(&web);
    let fetch = move |id: u32, request: FetchRequest| {
        let web = Rc::clone(&own);
        async move { web.fetch(id, request).await }
    };
    natives.set("fetch", Function::new(ctx.clone(), Async(fetch))?)?;
    let own = Rc::clone(&web);
    let read = move |id: u32| {
        let web = Rc::clone(&own);
        async move { web.read(id).await }
    };
    natives.set("read", Function::new(ctx.clone(), Async(read))?)?;
    let own = Rc::clone(&web);
    let all = move |id: u32, as_text: bool| {
        let web = Rc::clone(&own);
        async move { web.all(id, as_text).await }
    };
    natives.set("readAll", Function::new(ctx.clone(), Async(all))?)?;
    let own = Rc::clone(&web);
    let write = move |id: u32, bytes: Binary| {
        let sender = own.bodies.sender(id);
        async move {
            let Some(sender) = sender else { return false };
            sender.send(Ok(Bytes::from(bytes.0))).await.is_ok()
        }
    };
    natives.set("bodyWrite", Function::new(ctx.clone(), Async(write))?)?;
    let end = move |id: u32, broken: Option<String>| {
        let sender = web.bodies.finish_stream(id);
        async move {
            if let (Some(sender), Some(why)) = (sender, broken) {
                sender.send(Err(BodyError(why))).await.ok(); // the request may be closed
            }
        }
    };
    natives.set("bodyEnd", Function::new(ctx.clone(), Async(end))?)
}

impl Web {
    async fn fetch(&self, id: u32, request: FetchRequest) -> FetchResult {
        let _held = self.alive.hold();
        let end = self.bodies.end(id);
        let request = match request.into_http(self.bodies.take_stream(id)) {
            Ok(request) => request,
            Err(why) => return FetchResult::Failed(why.into()),
        };
        let fetched = tokio::select! {
            fetched = self.client.fetch(request) => fetched,
            () = end.notified() => return FetchResult::Failed("closed".to_owned().into()),
        };
        match fetched {
            Ok(response) => FetchResult::Response(Box::new(self.keep_response(id, response))),
            Err(error) => {
                self.bodies.close(id);
                FetchResult::Failed(error.into())
            }
        }
    }

    fn keep_response(&self, id: u32, response: HttpResponse) -> ResponseHead {
        let head = ResponseHead::of(&response);
        self.bodies.keep(id, response.body);
        head
    }

    async fn read(&self, id: u32) -> BodyChunk {
        let Some(mut body) = self.bodies.take(id) else { return BodyChunk::End };
        let piece = self.next(id, &mut body).await;
        match &piece {
            BodyChunk::Bytes(_) => self.bodies.keep(id, body),
            BodyChunk::Text(_) | BodyChunk::End | BodyChunk::Broken(_) => self.bodies.close(id),
        }
        piece
    }

    async fn next(&self, id: u32, body: &mut ResponseBody) -> BodyChunk {
        let _held = self.alive.hold();
        let end = self.bodies.end(id);
        tokio::select! {
            piece = body.next() => match piece {
                Ok(Some(bytes)) => BodyChunk::Bytes(Binary(bytes.into())),
                Ok(None) => BodyChunk::End,
                Err(error) => BodyChunk::Broken(format!("the response body failed: {error}")),
            },
            () = end.notified() => BodyChunk::Broken("closed".to_owned()),
        }
    }

    /// Reads the rest of a response body as bytes or as text.
    async fn all(&self, id: u32, as_text: bool) -> BodyChunk {
        let Some(mut body) = self.bodies.take(id) else { return BodyChunk::End };
        let mut whole = Vec::new();
        let ended = loop {
            match self.next(id, &mut body).await {
                BodyChunk::Bytes(bytes) if whole.is_empty() => whole = bytes.0,
                BodyChunk::Bytes(bytes) => whole.extend_from_slice(&bytes.0),
                ended @ (BodyChunk::Text(_) | BodyChunk::End | BodyChunk::Broken(_)) => {
                    break ended;
                }
            }
        };
        self.bodies.close(id);
        match ended {
            BodyChunk::Broken(_) => ended,
            BodyChunk::Bytes(_) | BodyChunk::Text(_) | BodyChunk::End if as_text => {
                BodyChunk::text(whole)
            }
            BodyChunk::Bytes(_) | BodyChunk::Text(_) | BodyChunk::End => {
                BodyChunk::Bytes(Binary(whole))
            }
        }
    }
}
