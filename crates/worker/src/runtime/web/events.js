// `Event`, `EventTarget`, `AbortController` and `AbortSignal`.
(function (native, part, global) {
  const ours = Symbol("ours");

  class Event {
    #type;
    #init;
    #state = { target: null, current: null, phase: 0, stopped: false, now: false, prevented: false };
    #time = Date.now();

    constructor(type, init = {}) {
      if (arguments.length === 0) throw new TypeError("Event: a type is needed");
      this.#type = `${type}`;
      this.#init = init ?? {};
    }
    get type() { return this.#type; }
    get target() { return this.#state.target; }
    get srcElement() { return this.#state.target; }
    get currentTarget() { return this.#state.current; }
    get eventPhase() { return this.#state.phase; }
    get bubbles() { return !!this.#init.bubbles; }
    get cancelable() { return !!this.#init.cancelable; }
    get composed() { return !!this.#init.composed; }
    get defaultPrevented() { return this.#state.prevented; }
    get returnValue() { return !this.#state.prevented; }
    get isTrusted() { return false; }
    get timeStamp() { return this.#time; }
    get cancelBubble() { return this.#state.stopped; }
    stopPropagation() { this.#state.stopped = true; }
    stopImmediatePropagation() { this.#state.stopped = this.#state.now = true; }
    preventDefault() { if (this.cancelable) this.#state.prevented = true; }
    composedPath() { return this.#state.current ? [this.#state.current] : []; }
    [ours]() { return this.#state; }
    get [Symbol.toStringTag]() { return "Event"; }
  }
  for (const [at, name] of ["NONE", "CAPTURING_PHASE", "AT_TARGET", "BUBBLING_PHASE"].entries()) {
    for (const on of [Event, Event.prototype]) Object.defineProperty(on, name, { value: at, enumerable: true });
  }

  const withDetails = (name, fields) => {
    const made = { [name]: class extends Event {
      #given;
      constructor(type, init = {}) {
        super(type, init);
        this.#given = init ?? {};
      }
      static [ours](event, field) { return event.#given[field]; }
      get [Symbol.toStringTag]() { return name; }
    } }[name];
    for (const [field, missing] of Object.entries(fields)) {
      Object.defineProperty(made.prototype, field, {
        configurable: true,
        get() { return made[ours](this, field) ?? missing; },
      });
    }
    return made;
  };
  const CustomEvent = withDetails("CustomEvent", { detail: null });
  const ErrorEvent = withDetails("ErrorEvent", { message: "", filename: "", lineno: 0, colno: 0, error: null });
  const MessageEvent = withDetails("MessageEvent", { data: null, origin: "", lastEventId: "", source: null });
  const ProgressEvent = withDetails("ProgressEvent", { lengthComputable: false, loaded: 0, total: 0 });

  const reportError = (error) => global.console?.error?.(error);

  class EventTarget {
    #listeners = new Map();

    addEventListener(type, callback, options) {
      if (callback === null || callback === undefined) return;
      if (typeof callback !== "function" && typeof callback !== "object") throw new TypeError("a listener is a function or an object");
      const given = typeof options === "object" && options !== null ? options : { capture: !!options };
      if (given.signal?.aborted) return;
      const known = this.#listeners.get(`${type}`) ?? [];
      const capture = !!given.capture;
      if (known.some((it) => it.callback === callback && it.capture === capture)) return;
      known.push({ callback, capture, once: !!given.once, gone: false });
      this.#listeners.set(`${type}`, known);
      given.signal?.addEventListener("abort", () => this.removeEventListener(type, callback, capture), { once: true });
    }
    removeEventListener(type, callback, options) {
      const capture = typeof options === "object" && options !== null ? !!options.capture : !!options;
      const known = this.#listeners.get(`${type}`) ?? [];
      const at = known.findIndex((it) => it.callback === callback && it.capture === capture);
      if (at >= 0) known.splice(at, 1)[0].gone = true;
    }
    dispatchEvent(event) {
      if (!(event instanceof Event)) throw new TypeError("dispatchEvent: not an Event");
      const state = event[ours]();
      if (state.phase !== 0) throw new (part("events").DOMException)("the event is being dispatched", "InvalidStateError");
      Object.assign(state, { target: this, current: this, phase: 2, now: false, stopped: false });
      const handler = this[`on${event.type}`];
      const own = typeof handler === "function" ? [{ callback: handler, gone: false, once: false }] : [];
      for (const it of [...own, ...(this.#listeners.get(event.type) ?? [])]) {
        if (it.gone) continue;
        if (state.now) break;
        if (it.once) this.removeEventListener(event.type, it.callback, it.capture);
        try {
          if (typeof it.callback === "function") it.callback.call(this, event);
          else it.callback.handleEvent(event);
        } catch (error) {
          reportError(error);
        }
      }
      Object.assign(state, { current: null, phase: 0 });
      return !event.defaultPrevented;
    }
    get [Symbol.toStringTag]() { return "EventTarget"; }
  }

  const CODES = {
    IndexSizeError: 1, HierarchyRequestError: 3, WrongDocumentError: 4, InvalidCharacterError: 5, NoModificationAllowedError: 7,
    NotFoundError: 8, NotSupportedError: 9, InUseAttributeError: 10, InvalidStateError: 11, SyntaxError: 12, InvalidModificationError: 13,
    NamespaceError: 14, InvalidAccessError: 15, TypeMismatchError: 17, SecurityError: 18, NetworkError: 19, AbortError: 20,
    URLMismatchError: 21, QuotaExceededError: 22, TimeoutError: 23, InvalidNodeTypeError: 24, DataCloneError: 25,
  };
  class DOMException extends Error {
    #name;
    constructor(message = "", options = "Error") {
      const given = typeof options === "object" && options !== null ? options : { name: options };
      super(`${message}`, "cause" in given ? { cause: given.cause } : undefined);
      this.#name = `${given.name ?? "Error"}`;
    }
    get name() { return this.#name; }
    get code() { return CODES[this.#name] ?? 0; }
    get [Symbol.toStringTag]() { return "DOMException"; }
  }
  for (const [name, code] of Object.entries(CODES)) {
    const constant = `${name.replace(/Error$/, "").replace(/([a-z])([A-Z])/g, "$1_$2").toUpperCase()}_ERR`;
    for (const on of [DOMException, DOMException.prototype]) Object.defineProperty(on, constant, { value: code, enumerable: true });
  }

  class AbortSignal extends EventTarget {
    #aborted = false;
    #reason;
    #followers = [];

    constructor(key) {
      if (key !== ours) throw new TypeError("Illegal constructor");
      super();
      this.onabort = null;
    }
    get aborted() { return this.#aborted; }
    get reason() { return this.#reason; }
    throwIfAborted() { if (this.#aborted) throw this.#reason; }

    [ours](reason = new DOMException("The signal has been aborted", "AbortError")) {
      if (this.#aborted) return;
      this.#aborted = true;
      this.#reason = reason;
      this.dispatchEvent(new Event("abort"));
      for (const follower of this.#followers.splice(0)) follower[ours](reason);
    }
    static abort(reason) {
      const made = new AbortSignal(ours);
      made[ours](reason);
      return made;
    }
    static timeout(milliseconds) {
      const wait = Number(milliseconds);
      if (!Number.isFinite(wait) || wait < 0) throw new TypeError("AbortSignal.timeout: a number of milliseconds is needed");
      const made = new AbortSignal(ours);
      native.sleep(wait).then(() => made[ours](new DOMException("Signal timed out.", "TimeoutError")));
      return made;
    }
    static any(signals) {
      const made = new AbortSignal(ours);
      const all = [...signals];
      const over = all.find((it) => it.aborted);
      if (over) made[ours](over.reason);
      else for (const it of all) it.#followers.push(made);
      return made;
    }
    get [Symbol.toStringTag]() { return "AbortSignal"; }
  }

  class AbortController {
    #signal = new AbortSignal(ours);
    get signal() { return this.#signal; }
    abort(reason) { this.#signal[ours](reason); }
    get [Symbol.toStringTag]() { return "AbortController"; }
  }

  return { Event, CustomEvent, ErrorEvent, MessageEvent, ProgressEvent, EventTarget, AbortController, AbortSignal, DOMException, reportError };
})
