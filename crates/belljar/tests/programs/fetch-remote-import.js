// oracle: hand: engines import from no such host
// expect: {"eight":8,"name":"a library"}
import name, { double } from "https://cdn.shop.test/lib.js";

({ eight: double(4), name });
