import { expect, test } from "vitest";
import type { ZodType } from "zod";
import { devopsFailure } from "../../shared/devops/failures.ts";
import { devopsRoute } from "../../shared/devops/response-schemas.ts";

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

test("a sign-in page is recognized by its type or its text, and a block by its code, whatever the status", () => {
  const asked = ["unauthorized", undefined, undefined];
  expect(failureOf(200, "Sign in", { "content-type": "text/html" })).toEqual(asked);
  expect(failureOf(200, "\r\n <!DOCTYPE html>")).toEqual(asked);
  expect(failureOf(200, '{"message":"<b>"}')).toBeUndefined();
  const blocked = '{"message": "TF400733: The request has been canceled."}';
  expect(failureOf(503, blocked, { "retry-after": "30" })).toEqual(["throttled", "TF400733", 30]);
  // Only a code at the start of the message counts.
  expect(failureOf(403, '{"message":"See TF400813: it says why."}')).toEqual(["accessDenied", undefined, undefined]);
  expect(failureOf(403, '{"message":"VS403463: no"}')).toEqual(["accessDenied", "VS403463", undefined]);
});

test("a missing permission is reported with the role to assign for the call", () => {
  const answer = { status: 403, body: "{}", header: () => undefined };
  expect(devopsFailure(answer, target)?.remedy).toBe("Give the service's identity the role Reader.");
  const { grant: _, ...unknown } = target;
  expect(devopsFailure(answer, unknown)?.remedy).toBe("Give the service's identity the permission for it.");
});

const GUID = "00000000-0000-4000-8000-000000000001";
const group = { id: 1, name: "group", type: "Vsts" };
const connection = { id: GUID, name: "connection", type: "azurerm", authorization: { scheme: "ServicePrincipal" } };
const PROXY = "/shop/_apis/serviceendpoint/endpointproxy";
const GROUP = "/shop/_apis/distributedtask/variablegroups/1";
const CONNECTION = `/shop/_apis/serviceendpoint/endpoints/${GUID}`;

test.each<[string, number, string, (text: string) => object]>([
  [
    "a user's name",
    1024,
    "/_apis/connectionData",
    (providerDisplayName) => ({ authenticatedUser: { id: GUID, providerDisplayName } }),
  ],
  ["a group's name", 1024, GROUP, (name) => ({ ...group, name })],
  ["a group's type", 64, GROUP, (type) => ({ ...group, type })],
  ["a group's vault", 256, GROUP, (vault) => ({ ...group, providerData: { vault } })],
  ["when a group was changed", 64, GROUP, (modifiedOn) => ({ ...group, modifiedOn })],
  ["a connection's type", 256, CONNECTION, (type) => ({ ...connection, type })],
  ["a connection's address", 2048, CONNECTION, (url) => ({ ...connection, url })],
  ["a connection's scheme", 256, CONNECTION, (scheme) => ({ ...connection, authorization: { scheme } })],
  ["what a test answers", 64, PROXY, (statusCode) => ({ statusCode })],
])("%s has %i characters at most", (_what, most, path, answerWith) => {
  const { answer } = devopsRoute(path, "https://dev.azure.com/acme")!;
  const takes = (length: number) => (answer as ZodType).safeParse(answerWith("x".repeat(length))).success;
  expect([takes(most), takes(most + 1)]).toEqual([true, false]);
});

test.each([
  ["the project's library", GROUP],
  ["the project's library", "/shop/_apis/distributedtask/variablegroups"],
  ["the project's library", "/_apis/distributedtask/variablegroups/1"],
  ["the project's settings", CONNECTION],
  ["the project's settings", "/shop/_apis/serviceendpoint/endpoints"],
  ["the project's settings", PROXY],
])("a missing permission for %s refers to %s at %s", (where, path) => {
  expect(devopsRoute(path, "https://dev.azure.com/acme")!.target.grant).toContain(`in ${where} the role`);
});
