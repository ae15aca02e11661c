//! The screen of a box over a WebSocket: several clients see it, and one of them types.
//!
//! The screen process of the box redraws the whole screen for each client, so a client that reconnects needs
//! no older bytes. Its bytes pass the terminal guard, as in `belljar attach`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::response::Response;
use belljar_engine::screen::guard::Guard;
use belljar_engine::screen::protocol::Size;
use belljar_engine::supervisor::{
    self,
    protocol::{FromSupervisor, ToSupervisor},
};
use bytes::Bytes;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::with_box;
use crate::serve::access::Act;
use crate::serve::app::App;
use crate::serve::call::Call;
use crate::serve::problem::{Problem, ProblemKind, of_state};
use crate::serve::routes::{Access, Operation, Routes};
use crate::serve::streams::{OpenStream, StreamKind};
use crate::serve::websocket::{self, Channel, Close, MAX_DATA, PendingSocket, Received, Socket};

/// The number of bytes that are read at once. Many clients are connected at once.
const PIECE: usize = 8 * 1024;

pub(super) fn add(routes: Routes) -> Routes {
    routes.add(
        Operation::get("/v1/boxes/{box}/screen", Access::For(Act::UseBoxes))
            .about("Connects a WebSocket to the screen and the keyboard of a box")
            .query::<ScreenParameters>()
            .returns_empty(StatusCode::SWITCHING_PROTOCOLS)
            .problems(&[ProblemKind::UPGRADE, ProblemKind::WRONG_STATE]),
        screen,
    )
}

/// The parameters of a connection to a screen.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScreenParameters {
    /// The number of rows of the client's terminal; 24 by default.
    #[schemars(range(min = 1, max = 1000))]
    rows: Option<u16>,
    /// The number of columns of the client's terminal; 80 by default.
    #[schemars(range(min = 1, max = 1000))]
    columns: Option<u16>,
    /// Whether the client only sees the screen. Otherwise the client takes the keyboard over.
    view: Option<bool>,
}

/// A control message of the client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "type")]
enum FromClient {
    /// The size of the client's terminal changed.
    Resize { rows: u16, columns: u16 },
    /// The client wants to see older lines; null shows the newest ones.
    Scroll { lines: Option<i32> },
    /// The client takes the keyboard over.
    TakeKeyboard,
}

/// A control message of the server.
#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "type")]
enum ToClient {
    /// Whether the keys of this client reach the box.
    Keyboard { own: bool },
    /// The box has stopped.
    Exit,
}

/// The client that types, for each box of a tenant.
#[derive(Default)]
pub(in crate::serve) struct Keyboards(Mutex<HashMap<String, watch::Sender<u64>>>);

impl Keyboards {
    fn of(&self, name: &str) -> watch::Sender<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, sender| sender.receiver_count() > 0);
        all.entry(name.to_owned()).or_default().clone()
    }
}

async fn screen(call: Call) -> Result<Response, Problem> {
    let ScreenParameters { rows, columns, view } = call.query()?;
    let size = checked_size(rows.unwrap_or(24), columns.unwrap_or(80))
        .ok_or_else(|| Problem::invalid("the size must be from 1 to 1000").field("/rows"))?;
    let name = call.param("box")?.to_owned();
    let keyboard = call.tenant()?.keyboards.of(&name);
    let open = call.app.streams.open(StreamKind::WebSocket, call.who()?)?;
    let (response, pending) = websocket::accept(&call)?;
    let connection = with_box(&call, move |state, found| {
        let request = ToSupervisor::Attach { size, read_only: false };
        match supervisor::call(state, &found, &request, None).map_err(of_state)? {
            (connection, FromSupervisor::Ok) => {
                let prepared = connection.set_nonblocking(true);
                let connection = prepared.and_then(|()| UnixStream::from_std(connection));
                connection.map_err(|_| Problem::internal("the screen cannot be read"))
            }
            _ => Err(Problem::internal("the supervisor sent an unexpected message")),
        }
    })
    .await?;
    let viewer = Viewer {
        app: Arc::clone(&call.app),
        connection,
        keyboard: keyboard.subscribe(),
        keyboards: keyboard,
        own: None,
        is_view: view.unwrap_or(false),
        offset: 0,
        open,
        _call: call.connection(),
    };
    viewer.app.tasks.clone().spawn(viewer.run(pending));
    Ok(response)
}

fn checked_size(rows: u16, columns: u16) -> Option<Size> {
    let is_valid = |it: u16| (1..=1000).contains(&it);
    (is_valid(rows) && is_valid(columns)).then_some(Size { rows, columns })
}

/// A client that sees a screen.
struct Viewer {
    app: Arc<App>,
    connection: UnixStream,
    keyboard: watch::Receiver<u64>,
    keyboards: watch::Sender<u64>,
    /// The number of this client as the one that types.
    own: Option<u64>,
    is_view: bool,
    /// The number of bytes that were sent.
    offset: u64,
    open: OpenStream,
    _call: Arc<crate::http::connections::Connection>,
}

/// What a viewer waits for.
enum Next {
    Screen(usize),
    Client(Received),
    KeyboardTaken,
    End(Close),
}

impl Viewer {
    async fn run(mut self, pending: PendingSocket) {
        let Some(mut socket) = pending.open().await else { return };
        if !self.is_view {
            self.take_keyboard();
        }
        if !self.tell_keyboard(&mut socket).await {
            return;
        }
        let why = self.serve(&mut socket).await;
        if why == Close::Normal {
            socket.send_control(&ToClient::Exit).await;
        }
        socket.close(why).await;
    }

    /// Passes bytes in both directions until one side ends.
    async fn serve(&mut self, socket: &mut Socket) -> Close {
        let mut guard = Guard::default();
        let mut buffer = vec![0; PIECE];
        loop {
            let next = tokio::select! {
                read = self.connection.read(&mut buffer) => Next::Screen(read.unwrap_or(0)),
                received = socket.receive() => Next::Client(received),
                changed = self.keyboard.changed() => match changed {
                    Ok(()) => Next::KeyboardTaken,
                    Err(_) => Next::End(Close::Internal),
                },
                end = self.open.end(&self.app) => Next::End(end.into()),
            };
            let is_open = match next {
                Next::Screen(0) => return Close::Normal,
                Next::Screen(length) => {
                    let bytes = buffer.get(..length).unwrap_or_default();
                    let mut safe = Vec::with_capacity(length);
                    guard.pass(bytes, &mut safe);
                    self.show(socket, &safe).await
                }
                Next::Client(Received::Closed) => return Close::Normal,
                Next::Client(Received::Invalid(why)) => return why,
                Next::Client(Received::Data { channel: Channel::Input, data, .. }) => {
                    self.type_keys(data).await
                }
                Next::Client(Received::Data { .. }) => return Close::Malformed,
                Next::Client(Received::Control(text)) => {
                    let Ok(control) = serde_json::from_str(&text) else { return Close::Malformed };
                    self.control(socket, control).await
                }
                Next::KeyboardTaken => self.tell_keyboard(socket).await,
                Next::End(why) => return why,
            };
            if !is_open {
                return Close::Normal;
            }
        }
    }

    async fn show(&mut self, socket: &mut Socket, bytes: &[u8]) -> bool {
        for piece in bytes.chunks(MAX_DATA) {
            if !socket.send_data(Channel::Screen, self.offset, piece).await {
                return false;
            }
            self.offset += u64::try_from(piece.len()).unwrap_or(u64::MAX);
        }
        true
    }

    async fn control(&mut self, socket: &mut Socket, control: FromClient) -> bool {
        match control {
            FromClient::Resize { rows, columns } => match checked_size(rows, columns) {
                Some(size) => self.send(&ToSupervisor::Resize(size)).await,
                None => false,
            },
            FromClient::Scroll { lines } => self.send(&ToSupervisor::Scroll(lines)).await,
            FromClient::TakeKeyboard => {
                self.take_keyboard();
                self.tell_keyboard(socket).await
            }
        }
    }

    /// Types keys, if this client has the keyboard.
    async fn type_keys(&mut self, keys: Bytes) -> bool {
        if self.own != Some(*self.keyboard.borrow()) {
            return true;
        }
        self.send(&ToSupervisor::Keys(keys.to_vec())).await
    }

    fn take_keyboard(&mut self) {
        self.keyboards.send_modify(|number| *number += 1);
        self.own = Some(*self.keyboard.borrow_and_update());
    }

    async fn tell_keyboard(&mut self, socket: &mut Socket) -> bool {
        let own = self.own == Some(*self.keyboard.borrow_and_update());
        socket.send_control(&ToClient::Keyboard { own }).await
    }

    async fn send(&mut self, message: &ToSupervisor) -> bool {
        let Ok(frame) = supervisor::encode(message) else { return false };
        self.connection.write_all(&frame).await.is_ok()
    }
}
