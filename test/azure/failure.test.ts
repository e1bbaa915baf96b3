import { execFileSync } from "node:child_process";
import { RestError } from "@azure/core-rest-pipeline";
import { expect, test } from "vitest";
import { asCloudFailure } from "../../shared/platform/azure/failure.ts";

const TARGET = { operation: "read a thing", resource: "thing 1" };

test("a mistake in this program is not turned into a cloud's failure", () => {
  const mistake = new TypeError("x is not a function");
  expect(() => asCloudFailure(mistake, TARGET)).toThrow(mistake);
  expect(() => asCloudFailure("thrown text", TARGET)).toThrow("thrown text");
});

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
] as const)("%s from an SDK is %s", (error, code) => {
  const failure = asCloudFailure(error, TARGET);
  expect(failure.code).toBe(code);
  expect(failure.message).toMatch(/^Could not read a thing \(thing 1\): /);
  expect(asCloudFailure(failure, { operation: "something else", resource: "x" })).toBe(failure);
});

test("importing the modules loads no cloud SDK", () => {
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
