import { expect, test } from "vitest";
import type { ZodType } from "zod";
import { devopsFailure } from "../../shared/devops/failures.ts";
import { devopsRoute } from "../../shared/devops/response-schemas.ts";

// Tests of how responses of Azure DevOps become failures, and of the schemas of its responses.

const target = { operation: "read a variable group", resource: "Azure DevOps", grant: "the role Reader" };
const JSON_TYPE = "application/json; charset=utf-8";
const ERROR_BODY = '{"$id":"1","message":"TF400813: The user is not authorized."}';

/**
 * Returns the code of the failure, the code of Azure DevOps, and the seconds to wait. Undefined if the response is not specific
 * to Azure DevOps.
 */
function failureOf(status: number, body = ERROR_BODY, headers: Record<string, string> = {}) {
  const allHeaders: Record<string, string> = { "content-type": JSON_TYPE, ...headers };
  const failure = devopsFailure({ status, body, header: (name) => allHeaders[name] }, target);
  return failure && [failure.code, failure.cloudCode, failure.retryAfterSeconds];
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
] as const)("a response of Azure DevOps with status %i is the failure %j", (status, expected) => {
  expect(failureOf(status, ERROR_BODY, { "retry-after": "7" })).toEqual(expected);
});

test("a sign-in page is recognized by its content type or its text", () => {
  const signInRequired = ["unauthorized", undefined, undefined];
  expect(failureOf(200, "Sign in", { "content-type": "text/html" })).toEqual(signInRequired);
  expect(failureOf(200, "\r\n <!DOCTYPE html>")).toEqual(signInRequired);
  expect(failureOf(200, '{"message":"<b>"}')).toBeUndefined();
  // A blocked request is recognized by its code with any status.
  const blocked = '{"message": "TF400733: The request has been canceled."}';
  expect(failureOf(503, blocked, { "retry-after": "30" })).toEqual(["throttled", "TF400733", 30]);
  // Only a code at the start of the message counts.
  expect(failureOf(403, '{"message":"See TF400813: it says why."}')).toEqual(["accessDenied", undefined, undefined]);
  expect(failureOf(403, '{"message":"VS403463: no"}')).toEqual(["accessDenied", "VS403463", undefined]);
});

test("a missing permission is reported with the role to assign for the call", () => {
  const response = { status: 403, body: "{}", header: () => undefined };
  expect(devopsFailure(response, target)?.remedy).toBe("Give the service's identity the role Reader.");
  const { grant: _, ...targetWithoutGrant } = target;
  expect(devopsFailure(response, targetWithoutGrant)?.remedy).toBe(
    "Give the service's identity the permission for it.",
  );
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
  ["a group's time of change", 64, GROUP, (modifiedOn) => ({ ...group, modifiedOn })],
  ["a connection's type", 256, CONNECTION, (type) => ({ ...connection, type })],
  ["a connection's address", 2048, CONNECTION, (url) => ({ ...connection, url })],
  ["a connection's scheme", 256, CONNECTION, (scheme) => ({ ...connection, authorization: { scheme } })],
  ["a connection test's result", 64, PROXY, (statusCode) => ({ statusCode })],
])("%s has %i characters at most", (_member, maxLength, path, responseWith) => {
  const { answer } = devopsRoute(path, "https://dev.azure.com/acme")!;
  const accepts = (length: number) => (answer as ZodType).safeParse(responseWith("x".repeat(length))).success;
  expect([accepts(maxLength), accepts(maxLength + 1)]).toEqual([true, false]);
});

test.each([
  ["the project's library", GROUP],
  ["the project's library", "/shop/_apis/distributedtask/variablegroups"],
  ["the project's library", "/_apis/distributedtask/variablegroups/1"],
  ["the project's settings", CONNECTION],
  ["the project's settings", "/shop/_apis/serviceendpoint/endpoints"],
  ["the project's settings", PROXY],
])("a missing permission names the role in %s for a request to %s", (where, path) => {
  expect(devopsRoute(path, "https://dev.azure.com/acme")!.target.grant).toContain(`in ${where} the role`);
});
