import { expect, test } from "vitest";
import { devopsFailure } from "../../shared/devops/failures.ts";

const target = { operation: "read a variable group", resource: "Azure DevOps", grant: "the role Reader" };
const JSON_TYPE = "application/json; charset=utf-8";
const SAID = '{"$id":"1","message":"TF400813: The user is not authorized."}';

function failureOf(status: number, body = SAID, headers: Record<string, string> = {}) {
  const all: Record<string, string> = { "content-type": JSON_TYPE, ...headers };
  const found = devopsFailure({ status, body, header: (name) => all[name] }, target);
  return found && [found.code, found.cloudCode, found.retryAfterSeconds];
}

test.each([
  [400, ["refused", "TF400813", undefined]],
  [401, ["unauthorized", "TF400813", undefined]],
  [203, ["unauthorized", "TF400813", undefined]],
  [300, ["unauthorized", "TF400813", undefined]],
  [399, ["unauthorized", "TF400813", undefined]],
  [403, ["accessDenied", "TF400813", undefined]],
  [404, ["notFound", "TF400813", undefined]],
  [429, ["throttled", "TF400813", 7]],
  [499, undefined],
  [500, ["unreachable", "TF400813", undefined]],
  [503, ["unreachable", "TF400813", undefined]],
  [200, undefined],
  [299, undefined],
] as const)("an answer of Azure DevOps with %i is %j", (status, expected) => {
  expect(failureOf(status, SAID, { "retry-after": "7" })).toEqual(expected);
});

test("a sign-in page is one by its type or its text, and a block by its code, whatever the status", () => {
  const asked = ["unauthorized", undefined, undefined];
  expect(failureOf(200, "Sign in", { "content-type": "text/html" })).toEqual(asked);
  expect(failureOf(200, "\r\n <!DOCTYPE html>")).toEqual(asked);
  expect(failureOf(200, '{"message":"<b>"}')).toBeUndefined();
  const blocked = '{"message": "TF400733: The request has been canceled."}';
  expect(failureOf(503, blocked, { "retry-after": "30" })).toEqual(["throttled", "TF400733", 30]);
  // A code is what a message begins with.
  expect(failureOf(403, '{"message":"See TF400813: it says why."}')).toEqual(["accessDenied", undefined, undefined]);
  expect(failureOf(403, '{"message":"VS403463: no"}')).toEqual(["accessDenied", "VS403463", undefined]);
});

test("who may not do that is told what to give, with the permission that the call takes", () => {
  const answer = { status: 403, body: "{}", header: () => undefined };
  expect(devopsFailure(answer, target)?.remedy).toBe("Give the service's identity the role Reader.");
  const { grant: _, ...unknown } = target;
  expect(devopsFailure(answer, unknown)?.remedy).toBe("Give the service's identity the permission for it.");
});
