//! The native half of `fetch`: an exchange has a number, and ends when it is closed.

use std::rc::Rc;

use bytes::Bytes;
use rquickjs::function::{Async, Func};
use rquickjs::{Ctx, Function, Object, Result};

use super::Options;
use super::binary::Binary;
use super::bodies::Bodies;
use super::exchange::{Head, Outcome, Piece, Wanted};
use crate::runtime::alive::Alive;
use crate::runtime::http::{Answer, Broken, Client, Incoming};

/// All that the functions share.
struct Web {
    client: Client,
    alive: Alive,
    bodies: Bodies,
}

pub(super) fn natives<'js>(ctx: &Ctx<'js>, natives: &Object<'js>, options: &Options) -> Result<()> {
    let (client, alive) = (Client::new(options.door), options.alive.clone());
    let web = Rc::new(Web { client, alive, bodies: Bodies::default() });
    let own = Rc::clone(&web);
    natives.set("exchange", Func::from(move || own.bodies.open()))?;
    let own = Rc::clone(&web);
    natives.set("close", Func::from(move |id: u32| own.bodies.close(id)))?;
    let own = Rc::clone(&web);
    natives.set("bodyOpen", Func::from(move |id: u32| own.bodies.stream(id)))?;
    let own = Rc::clone(&web);
    let fetch = move |id: u32, wanted: Wanted| {
        let web = Rc::clone(&own);
        async move { web.fetch(id, wanted).await }
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
        let sender = web.bodies.sent(id);
        async move {
            if let (Some(sender), Some(why)) = (sender, broken) {
                sender.send(Err(Broken(why))).await.ok(); // nobody may want it any more
            }
        }
    };
    natives.set("bodyEnd", Function::new(ctx.clone(), Async(end))?)
}

impl Web {
    async fn fetch(&self, id: u32, wanted: Wanted) -> Outcome {
        let _held = self.alive.hold();
        let end = self.bodies.end(id);
        let ask = match wanted.ask(self.bodies.streamed(id)) {
            Ok(ask) => ask,
            Err(why) => return Outcome::Failed(why.into()),
        };
        let fetched = tokio::select! {
            fetched = self.client.fetch(ask) => fetched,
            () = end.notified() => return Outcome::Failed("closed".to_owned().into()),
        };
        match fetched {
            Ok(answer) => Outcome::Answer(Box::new(self.answered(id, answer))),
            Err(error) => {
                self.bodies.close(id);
                Outcome::Failed(error.into())
            }
        }
    }

    fn answered(&self, id: u32, answer: Answer) -> Head {
        let head = Head::of(&answer);
        self.bodies.keep(id, answer.body);
        head
    }

    async fn read(&self, id: u32) -> Piece {
        let Some(mut body) = self.bodies.take(id) else { return Piece::End };
        let piece = self.next(id, &mut body).await;
        match &piece {
            Piece::Bytes(_) => self.bodies.keep(id, body),
            Piece::Text(_) | Piece::End | Piece::Broken(_) => self.bodies.close(id),
        }
        piece
    }

    async fn next(&self, id: u32, body: &mut Incoming) -> Piece {
        let _held = self.alive.hold();
        let end = self.bodies.end(id);
        tokio::select! {
            piece = body.next() => match piece {
                Ok(Some(bytes)) => Piece::Bytes(Binary(bytes.into())),
                Ok(None) => Piece::End,
                Err(error) => Piece::Broken(format!("the body of the answer broke off: {error}")),
            },
            () = end.notified() => Piece::Broken("closed".to_owned()),
        }
    }

    /// All that is left, as bytes or as text.
    async fn all(&self, id: u32, as_text: bool) -> Piece {
        let Some(mut body) = self.bodies.take(id) else { return Piece::End };
        let mut whole = Vec::new();
        let ended = loop {
            match self.next(id, &mut body).await {
                Piece::Bytes(bytes) if whole.is_empty() => whole = bytes.0,
                Piece::Bytes(bytes) => whole.extend_from_slice(&bytes.0),
                ended @ (Piece::Text(_) | Piece::End | Piece::Broken(_)) => break ended,
            }
        };
        self.bodies.close(id);
        match ended {
            Piece::Broken(_) => ended,
            Piece::Bytes(_) | Piece::Text(_) | Piece::End if as_text => Piece::text(whole),
            Piece::Bytes(_) | Piece::Text(_) | Piece::End => Piece::Bytes(Binary(whole)),
        }
    }
}
