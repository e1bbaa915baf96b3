import { execFileSync } from "node:child_process";
import { RestError } from "@azure/core-rest-pipeline";
import { expect, test } from "vitest";
import { asCloudFailure } from "../../shared/platform/azure/failure.ts";

/** Tests of how errors of SDKs and connections become a `CloudFailure` with one of the documented codes. */

const TARGET = { operation: "read a thing", resource: "thing 1" };

test("an error of this program is rethrown and does not become a CloudFailure", () => {
  const programError = new TypeError("x is not a function");
  expect(() => asCloudFailure(programError, TARGET)).toThrow(programError);
  expect(() => asCloudFailure("thrown text", TARGET)).toThrow("thrown text");
});

test.each(["ERR_INVALID_ARG_TYPE", "ERR_INVALID_URL", "ERR_SOCKET_BAD_PORT"])(
  "an error with Node's code %s is an error of this program and is rethrown",
  (code) => {
    const programError = Object.assign(new TypeError("invalid argument"), { code });
    expect(() => asCloudFailure(programError, TARGET)).toThrow(programError);
  },
);

test.each(["ERR_TLS_CERT_ALTNAME_INVALID", "ERR_SSL_WRONG_VERSION_NUMBER", "ERR_STREAM_PREMATURE_CLOSE"])(
  "an error with Node's code %s is a broken connection and becomes unreachable",
  (code) => {
    const failure = asCloudFailure(Object.assign(new Error("connection"), { code }), TARGET);
    expect(failure).toMatchObject({ code: "unreachable", cloudCode: code });
  },
);

test.each([
  [new RestError("getaddrinfo ENOTFOUND x", { code: "ENOTFOUND" }), "unreachable"],
  [new RestError("socket hang up", { code: "ECONNRESET" }), "unreachable"],
  [new RestError("no", { code: "REQUEST_SEND_ERROR" }), "unreachable"],
  [new RestError("no JSON", { code: "PARSE_ERROR", statusCode: 200 }), "badResponse"],
  [new RestError("denied", { code: "Forbidden", statusCode: 403 }), "accessDenied"],
  [new RestError("busy", { statusCode: 429 }), "throttled"],
  [new RestError("odd", { statusCode: 499 }), "badResponse"],
  [new RestError("down", { statusCode: 500 }), "unreachable"],
  [Object.assign(new Error("connect"), { code: "ECONNREFUSED" }), "unreachable"],
  [new DOMException("stop", "AbortError"), "timedOut"],
  [new DOMException("late", "TimeoutError"), "timedOut"],
] as const)("%s from an SDK becomes a CloudFailure with code %s", (error, code) => {
  const failure = asCloudFailure(error, TARGET);
  expect(failure.code).toBe(code);
  expect(failure.message).toMatch(/^Could not read a thing \(thing 1\): /);
  expect(asCloudFailure(failure, { operation: "something else", resource: "x" })).toBe(failure);
});

test("importing the modules loads no Azure SDK", () => {
  const modules = ["failure", "identity", "key-vault", "resource-manager"].map(
    (name) => new URL(`../../shared/platform/azure/${name}.ts`, import.meta.url).href,
  );
  const script = `
    import { registerHooks } from "node:module";
    const loaded = [];
    registerHooks({ load(url, context, next) { loaded.push(url); return next(url, context); } });
    for (const module of ${JSON.stringify(modules)}) await import(module);
    console.log(JSON.stringify(loaded));`;
  const loaded: string[] = JSON.parse(
    execFileSync(process.execPath, ["--input-type=module", "--eval", script], { encoding: "utf8" }),
  );
  expect(loaded.filter((url) => url.endsWith("/shared/platform/azure/key-vault.ts"))).toHaveLength(1);
  expect(loaded.filter((url) => url.includes("/@azure/"))).toEqual([]);
});
