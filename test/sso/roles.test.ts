import { describe, expect, test } from "vitest";
import { ROLES, type Role } from "../../shared/platform/http/endpoint.ts";
import { type SsoConfiguration, UNCONFIGURED } from "../../shared/sso/configuration.ts";
import { emailOf, nameOf, verifiedDomainOf } from "../../shared/sso/person.ts";
import { roleOf } from "../../shared/sso/roles.ts";

// Tests of what the service reads from the claims or attributes of a person who signs in: the role, the email address and the
// name.

const person = (claims: Record<string, unknown>) => ({ issuer: "https://idp.example", subject: "1", claims });
const config = (change: Partial<SsoConfiguration>): SsoConfiguration => ({ ...UNCONFIGURED, ...change });
/** A configuration that maps the value `is-ROLE` of a claim to each role. */
const withRoleMapping = (rolesClaim: string, change: Partial<SsoConfiguration> = {}) =>
  config({ rolesClaim, roleMapping: Object.fromEntries(ROLES.map((role) => [`is-${role}`, role])), ...change });

describe("the role of a person", () => {
  test.each<[readonly string[], Role | string]>([
    [["is-user"], "user"],
    [["is-user", "is-auditor"], "auditor"],
    [["is-operator", "is-user", "other"], "operator"],
    [["is-admin", "is-auditor", "is-operator"], "admin"],
    [["is-auditor", "is-operator"], "rolesConflict"],
    [[], "user"],
    [["other", "toString", "__proto__"], "user"],
    [["IS-ADMIN"], "user"],
  ])("with the claim values %j is %s", (values, expected) => {
    const result = roleOf(withRoleMapping("roles"), person({ roles: values }), "operator");
    expect(typeof result === "string" ? result : result.refused).toBe(expected);
  });

  test.each<[string, unknown]>([
    ["roles", { roles: "is-auditor" }],
    ["roles", { roles: ["is-auditor", 1, null, { a: "is-admin" }] }],
    ["/realm_access/roles", { realm_access: { roles: ["is-auditor"] } }],
    ["/a~1b/c~0d/1", { "a/b": { "c~d": ["is-admin", "is-auditor"] } }],
    ["http://schemas.example/claims/role", { "http://schemas.example/claims/role": ["is-auditor"] }],
  ])("is read from the claim or JSON pointer %s", (rolesClaim, claims) => {
    expect(roleOf(withRoleMapping(rolesClaim), person(claims as Record<string, unknown>), undefined)).toBe("auditor");
  });

  test.each(["/roles/0/x", "/toString", "constructor", "/__proto__/x", "/"])(
    "is not found at the claim or JSON pointer %s",
    (rolesClaim) => {
      const configuration = withRoleMapping(rolesClaim, { defaultRole: undefined as never });
      expect(roleOf(configuration, person({ roles: ["is-admin"] }), "user")).toEqual({ refused: "noRole" });
    },
  );

  test("is rejected if the provider left the claim out because it is too long", () => {
    const claims = { _claim_names: { groups: "src1" }, _claim_sources: {} };
    expect(roleOf(withRoleMapping("groups"), person(claims), "admin")).toEqual({ refused: "rolesNotSent" });
  });

  test("is the current role, or else the default role, without a mapping", () => {
    expect(roleOf(config({}), person({ roles: ["is-admin"] }), "operator")).toBe("operator");
    expect(roleOf(config({ defaultRole: "auditor" }), person({}), undefined)).toBe("auditor");
    expect(roleOf(config({ defaultRole: undefined as never }), person({}), undefined)).toEqual({ refused: "noRole" });
  });
});

describe("an email address", () => {
  test.each<[Record<string, unknown>, string | undefined]>([
    [{ email: "a@Acme.Example", email_verified: true }, "acme.example"],
    [{ email: "a@acme.example", email_verified: "true" }, "acme.example"],
    [{ email: "a@acme.example", xms_edov: true }, "acme.example"],
    [{ email: "a@acme.example", xms_edov: "1" }, "acme.example"],
    [{ email: "a@acme.example" }, undefined],
    [{ email: "a@acme.example", email_verified: false }, undefined],
    [{ email: "a@acme.example", email_verified: "yes" }, undefined],
    [{ email_verified: true, preferred_username: "a@acme.example" }, undefined],
    [{ email: "a@b@acme.example", email_verified: true }, undefined],
  ])("in the claims %j proves the domain %s", (claims, domain) => {
    expect(verifiedDomainOf(person(claims))).toBe(domain);
  });
});

describe("the name and the email address of a person", () => {
  test("are read from SAML attributes and OIDC claims", () => {
    const saml = person({
      "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress": ["a@acme.example"],
      "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/name": ["ada@acme.example"],
    });
    expect([emailOf(saml), nameOf(saml)]).toEqual(["a@acme.example", "ada"]);
    expect(nameOf(person({ name: "Ada L", email: "al@acme.example" }))).toBe("al");
    expect(nameOf(person({}))).toBeUndefined();
  });

  test.each([
    ["ada@acme.example", "ada"],
    ["ada@evil@acme.example", "ada"],
    ["ada@acme.example\nbob", "ada"],
    ["@acme.example", ""],
    ["Ada Lovelace", "Ada Lovelace"],
  ])("contain, for the claim %j, the part before the first @ as the name: %j", (claim, name) => {
    expect(nameOf(person({ upn: claim }))).toBe(name);
  });

  test.each<[string, Record<string, unknown>, string, string | undefined]>([
    ["Okta and Ping", { firstName: "Ada", lastName: "Lind", email: "ada@acme.example" }, "ada", "ada@acme.example"],
    ["Keycloak", { "urn:oid:2.5.4.42": ["Ada"], "urn:oid:2.5.4.4": ["Lind"] }, "Ada Lind", undefined],
    ["Keycloak with an address", { "urn:oid:1.2.840.113549.1.9.1": ["ada@acme.example"] }, "ada", "ada@acme.example"],
    ["Shibboleth", { "urn:oid:0.9.2342.19200300.100.1.1": ["ada"], "urn:oid:2.5.4.3": ["Ada Lind"] }, "ada", undefined],
    ["ADFS", { "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/upn": ["ada@corp"] }, "ada", undefined],
    ["Entra", { "http://schemas.microsoft.com/identity/claims/displayname": ["Ada Lind"] }, "Ada Lind", undefined],
  ])("are read from the attributes of %s", (_provider, attributes, name, email) => {
    expect([nameOf(person(attributes)), emailOf(person(attributes))]).toEqual([name, email]);
  });

  test("are not read from a claim of more than 1,024 characters, but from the next claim", () => {
    const name = `${"a".repeat(1011)}@acme.example`;
    expect(nameOf(person({ upn: name, name: "Ada" }))).toBe("a".repeat(1011));
    expect(nameOf(person({ upn: `a${name}`, name: "Ada" }))).toBe("Ada");
    expect(nameOf(person({ upn: "@".repeat(1_000_000) }))).toBeUndefined();
    expect(emailOf(person({ email: `a${name}` }))).toBeUndefined();
  });
});
