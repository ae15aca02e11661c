//! The route that changes the network of a box.

use axum::response::Response;
use belljar_engine::boxes;
use belljar_engine::supervisor::setup::Setup;
use belljar_model::boxes::NetworkChange;
use belljar_model::{Net, Overrides};
use http::StatusCode;

use super::spec::{NetworkParts, NetworkRequest};
use super::view::BoxDetail;
use super::{CHANGE, changed_box};
use crate::serve::access::Act;
use crate::serve::call::Call;
use crate::serve::problem::{Problem, of_state};
use crate::serve::rights;
use crate::serve::routes::{Access, Operation, Routes};

pub(super) fn add(routes: Routes) -> Routes {
    routes.add(
        Operation::put("/v1/boxes/{box}/network", Access::For(Act::UseBoxes))
            .about("Changes the network of a box, for the current run and for later starts")
            .body::<NetworkRequest>()
            .with_language()
            .returns::<BoxDetail>(StatusCode::OK)
            .problems(CHANGE),
        change,
    )
}

/// Members and tokens can only restrict the network.
async fn change(call: Call) -> Result<Response, Problem> {
    let NetworkParts { mode, allow, deny } = call.json::<NetworkRequest>()?.parts()?;
    let who = call.who()?.clone();
    changed_box(&call, "box.network-changed", move |state, found| {
        let base = Setup::of(found, state).map_err(of_state)?.base;
        let net: Net = mode.unwrap_or(base.net);
        let overrides = Overrides {
            net: Some(net),
            allow: allow.clone(),
            deny: deny.clone(),
            ..Overrides::default()
        };
        rights::check_overrides(&who, &base, &overrides)?;
        let change = NetworkChange { net, allow, deny };
        boxes::change_network(state, found.name(), &change).map(drop).map_err(of_state)
    })
    .await
}
