import { expect, test } from "vitest";
import { reasonsAgainst } from "../../shared/applications/rotatable.ts";

// Tests of the reasons that prevent a rotation of an application's client secret.

const NOW = Date.parse("2026-11-21T10:00:00.000Z");
const OWNER = "5a1c0d3e-0000-4000-8000-000000000001";
const secret = { keyId: "k", kind: "secret" as const, of: "application" as const, expiresOn: NOW / 1000 + 86_400 };

/**
 * Returns the reasons that prevent a rotation of an application with one secret, for these permissions of the service's
 * identity.
 */
const reasonCodes = (permissions: string[], owners: string[] | undefined, objectId: string | undefined = OWNER) =>
  reasonsAgainst(
    {
      kind: "application",
      credentials: [secret],
      ...(owners && { owners: owners.map((id) => ({ id })) }),
    },
    { permissions, ...(objectId && { objectId }) },
    NOW,
  ).map(({ code }) => code);

test.for([
  ["Application.ReadWrite.All", []],
  ["Directory.ReadWrite.All", []],
  ["Application.ReadWrite.OwnedBy", ["notOwner"]],
  ["Application.Read.All", ["notPermitted"]],
] as const)(
  "with the permission %s, the reasons against a rotation of another owner's application are %j",
  ([permission, reasons]) => {
    expect(reasonCodes([permission], ["somebody-else"])).toEqual(reasons);
  },
);

test("a permission for owned applications is sufficient if the service is an owner or may be one", () => {
  const owned = ["Application.ReadWrite.OwnedBy"];
  expect(reasonCodes(owned, ["somebody-else", OWNER], OWNER.toUpperCase())).toEqual([]);
  // The service may be an owner if the owners are unknown, or if Graph returned 20, the most that it returns.
  expect(reasonCodes(owned, undefined)).toEqual([]);
  const others = (count: number) => Array.from({ length: count }, (_, index) => `owner-${index}`);
  expect(reasonCodes(owned, others(19))).toEqual(["notOwner"]);
  expect(reasonCodes(owned, others(20))).toEqual([]);
});

test.each(["AzureADandPersonalMicrosoftAccount", "PersonalMicrosoftAccount"])(
  "an application of the audience %s can't have a third secret",
  (signInAudience) => {
    const until = (seconds: number) => ({ ...secret, expiresOn: NOW / 1000 + seconds });
    const otherCredentials = [
      { ...secret, kind: "certificate" as const },
      { ...secret, of: "servicePrincipal" as const },
    ];
    const rights = { permissions: ["Application.ReadWrite.All"] };
    const reasons = (audience: string, ...credentials: (typeof secret)[]) =>
      reasonsAgainst(
        { kind: "application", signInAudience: audience, credentials: [...credentials, ...otherCredentials] },
        rights,
        NOW,
      ).map(({ code }) => code);
    // An expired secret counts too. It can be removed first, which is another reason code.
    expect(reasons(signInAudience, secret)).toEqual([]);
    expect(reasons(signInAudience, secret, until(0))).toEqual(["noRoomForSecret"]);
    expect(reasons(signInAudience, secret, until(-1))).toEqual(["expiredSecretInTheWay"]);
    expect(reasons("AzureADMultipleOrgs", secret, until(-1), until(0))).toEqual([]);
  },
);
