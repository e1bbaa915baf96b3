import { expect, test } from "vitest";
import { reasonsAgainst } from "../../shared/applications/rotatable.ts";

const NOW = Date.parse("2026-11-21T10:00:00.000Z");
const OWNER = "5a1c0d3e-0000-4000-8000-000000000001";
const secret = { keyId: "k", kind: "secret" as const, of: "application" as const, expiresOn: NOW / 1000 + 86_400 };

/**
 * Returns the reasons that prevent a rotation of an application with one secret, for these permissions of the service's
 * identity.
 */
const codes = (permissions: string[], owners: string[] | undefined, objectId: string | undefined = OWNER) =>
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
] as const)("with the permission %s an application of another owner has the reasons %j", ([permission, reasons]) => {
  expect(codes([permission], ["somebody-else"])).toEqual(reasons);
});

test("a permission for owned applications is sufficient for those, and if a list of owners may be incomplete", () => {
  const owned = ["Application.ReadWrite.OwnedBy"];
  expect(codes(owned, ["somebody-else", OWNER], OWNER.toUpperCase())).toEqual([]);
  expect(codes(owned, undefined)).toEqual([]);
  const others = (count: number) => Array.from({ length: count }, (_, index) => `owner-${index}`);
  expect(codes(owned, others(19))).toEqual(["notOwner"]);
  expect(codes(owned, others(20))).toEqual([]);
});

test.each(["AzureADandPersonalMicrosoftAccount", "PersonalMicrosoftAccount"])(
  "an application of the audience %s can't have a third secret, even if one of its two expires this second",
  (signInAudience) => {
    const until = (seconds: number) => ({ ...secret, expiresOn: NOW / 1000 + seconds });
    const beside = [
      { ...secret, kind: "certificate" as const },
      { ...secret, of: "servicePrincipal" as const },
    ];
    const rights = { permissions: ["Application.ReadWrite.All"] };
    const reasons = (audience: string, ...credentials: (typeof secret)[]) =>
      reasonsAgainst(
        { kind: "application", signInAudience: audience, credentials: [...credentials, ...beside] },
        rights,
        NOW,
      ).map(({ code }) => code);
    expect(reasons(signInAudience, secret)).toEqual([]);
    expect(reasons(signInAudience, secret, until(0))).toEqual(["noRoomForSecret"]);
    expect(reasons(signInAudience, secret, until(-1))).toEqual(["expiredSecretInTheWay"]);
    expect(reasons("AzureADMultipleOrgs", secret, until(-1), until(0))).toEqual([]);
  },
);
