import { deflateRawSync, inflateRawSync } from "node:zlib";
import { afterAll, beforeAll, describe } from "vitest";
import { skipWithout } from "../../support/tools.ts";
import { Browser, isSignInPage, KEYCLOAK_URL, ORIGIN, type Representation } from "./keycloak.ts";
import { createCases, Lab } from "./lab.ts";

// Sign-ins and sign-outs with a running Keycloak by SAML.

const ENTITY_ID = `${ORIGIN}/auth/sso/metadata`;

describe.skipIf(skipWithout("keycloak"))("with Keycloak by SAML", () => {
  /** Declares a test: its title, the expected result (see `outcomeOf`), and the function that returns the actual one. */
  const sees = createCases();
  let lab: Lab;
  let imported: Representation;

  const descriptor = async () => await (await fetch(`${lab.realm.url}/protocol/saml/descriptor`)).text();
  const withClient = (change: Representation, run: () => Promise<string>) =>
    lab.realm.withClient(change, run, ENTITY_ID);
  const withAttributes = (attributes: Record<string, string>, run: () => Promise<string>) =>
    withClient({ attributes }, run);
  const certificates = async (): Promise<string[]> =>
    (await lab.service.admin("GET", "/auth/sso/config")).body.samlIdpCertificates.map(
      ({ certificate }: Representation) => certificate,
    );

  beforeAll(async () => {
    lab = await Lab.start();
    await lab.configure({
      providerType: "saml",
      isEnabled: true,
      autoCreateUsers: true,
      defaultRole: null,
      rolesClaim: "Role",
      roleMapping: ROLE_MAPPING,
      samlIdpMetadataXml: await descriptor(),
      samlSignRequests: true,
    });
    const metadata = (await lab.service.call("GET", "/auth/sso/metadata")).text;
    imported = await lab.realm.admin("POST", "/client-description-converter", metadata);
    // The mappers are those of the docs. `single`: one attribute with all roles. Keycloak's default is an attribute for each.
    await lab.realm.admin("POST", "/clients", { ...imported, protocolMappers: MAPPERS });
  });
  afterAll(() => lab?.stop());

  /** Signs in up to the callback, and returns it. */
  async function hold(person: string, changeRequest?: (address: string) => string) {
    const browser = new Browser(lab.service);
    browser.holdCallback = true;
    const start = await browser.send(new URL(`${ORIGIN}/auth/sso/login`));
    const address = start.headers.get("location")!;
    const page = await browser.open(changeRequest?.(address) ?? address);
    const { held } = isSignInPage(page) ? await browser.enterPassword(page, person) : page;
    browser.holdCallback = false;
    return { browser, held: held!, xml: Buffer.from(held!.form!.get("SAMLResponse")!, "base64").toString() };
  }

  // Metadata and the connection test.
  sees(
    "our metadata is imported: addresses, signed requests, encryption",
    `${ORIGIN}/auth/sso/logout, true, true`,
    async () => {
      const { attributes } = imported;
      const slo = attributes.saml_single_logout_service_url_redirect;
      return `${slo}, ${attributes["saml.client.signature"]}, ${attributes["saml.encrypt"]}`;
    },
  );
  sees(
    "Keycloak's metadata is imported: addresses and one certificate",
    "/protocol/saml, /protocol/saml, 1",
    async () => {
      const { body } = await lab.service.admin("GET", "/auth/sso/config");
      const path = (url: string) => url.replace(lab.realm.url, "");
      return `${path(body.samlEntryPoint)}, ${path(body.samlLogoutUrl)}, ${body.samlIdpCertificates.length}`;
    },
  );
  sees("connection test: right values", "passed", () => lab.connectionTest());
  sees("connection test: Keycloak's metadata of a missing realm", /^400 .*samlIdpMetadataXml/, async () => {
    const answer = await fetch(`${KEYCLOAK_URL}/realms/none/protocol/saml/descriptor`);
    return await lab.connectionTest({ samlIdpMetadataXml: await answer.text() });
  });

  // Sign-ins and roles.
  sees("sign-in as imported: signed request, encrypted assertion, role mapped to admin", "in as admin", () =>
    lab.signIn("ada"),
  );
  sees("the sign-in returns to the page", "/#/vaults?a=ü", async () => {
    const page = await new Browser(lab.service).signIn("ada", "/#/vaults?a=ü");
    return decodeURIComponent(page.view ?? "none");
  });
  sees("username, email address and name with umlauts", "jurgen.grosse, juergen.groesse@acme.example", async () => {
    const me = await (await lab.signInNewBrowser("jürgen.größe")).me();
    return `${me?.username}, ${me?.email}`;
  });
  sees("no mapped role", "403 noRole", () => lab.signIn("nina"));
  sees("operator and auditor together", "403 rolesConflict", () => lab.signIn("otto"));
  sees(
    "role changed at Keycloak: the next sign-in ends the older session",
    "in as operator, older session ended",
    async () => {
      const older = await lab.signInNewBrowser("olga");
      await lab.realm.setRoles("olga", ["Lifecycle.User"]);
      await lab.signIn("olga");
      const ended = (await older.me()) === undefined;
      await lab.realm.setRoles("olga", ["Lifecycle.Operator"]);
      return `${await lab.signIn("olga")}, older session ${ended ? "ended" : "continues"}`;
    },
  );
  sees("an attribute for each role (Single Role Attribute is off)", "in as admin", async () => {
    const { id, protocolMappers } = await lab.realm.client(ENTITY_ID);
    const roles = protocolMappers.find(({ name }: Representation) => name === "single role");
    const path = `/clients/${id}/protocol-mappers/models/${roles.id}`;
    await lab.realm.admin("PUT", path, { ...roles, config: { ...roles.config, single: "false" } });
    const seen = await lab.signIn("ada");
    await lab.realm.admin("PUT", path, roles);
    return seen;
  });
  sees("groups in the attribute member", "in as operator", () =>
    lab.realm.withMapper(
      GROUPS_MAPPER,
      () =>
        lab.withConfiguration({ rolesClaim: "member", roleMapping: { "/Operator": "operator" } }, () =>
          lab.signIn("olga"),
        ),
      ENTITY_ID,
    ),
  );
  sees("accounts are not created: an unknown person", "403 stranger", async () => {
    await lab.realm.setRoles("nina", ["Lifecycle.User"]);
    return await lab.withConfiguration({ autoCreateUsers: false }, () => lab.signIn("nina"));
  });
  sees("the user is disabled at Keycloak", /^Keycloak.*disabled/, async () => {
    await lab.realm.setEnabled("nina", false);
    const seen = await lab.signIn("nina");
    await lab.realm.setEnabled("nina", true);
    return seen;
  });

  // Signatures and encryption.
  // Turning signed requests off and on again gives the service a new key. The next two tests start with it.
  sees("requests must be signed, and are not", /^Keycloak 400: Invalid requester/, () =>
    lab.withConfiguration({ samlSignRequests: false }, () => lab.signIn("uma")),
  );
  sees("the service's key was replaced, and Keycloak has the old certificate", /^Keycloak 400: Invalid requester/, () =>
    lab.signIn("uma"),
  );
  sees("our metadata is imported again", "in as user", async () => {
    const metadata = (await lab.service.call("GET", "/auth/sso/metadata")).text;
    const { attributes } = await lab.realm.admin("POST", "/client-description-converter", metadata);
    const client = await lab.realm.client(ENTITY_ID);
    await lab.realm.admin("PUT", `/clients/${client.id}`, {
      ...client,
      attributes: { ...client.attributes, ...attributes },
    });
    return await lab.signIn("uma");
  });
  sees("unsigned requests, which Keycloak does not require", "in as user", () =>
    withAttributes({ "saml.client.signature": "false", "saml.encrypt": "false" }, () => lab.signIn("uma")),
  );
  for (const [name, attributes, expected] of [
    ["assertion not encrypted", { "saml.encrypt": "false" }, "in as user"],
    [
      "encrypted, and only the document is signed",
      { "saml.assertion.signature": "false", "saml.server.signature": "true" },
      "400 badResponse notSigned",
    ],
    [
      "encrypted, assertion and document are signed",
      { "saml.assertion.signature": "true", "saml.server.signature": "true" },
      "in as user",
    ],
    [
      "encrypted, only the assertion is signed",
      { "saml.assertion.signature": "true", "saml.server.signature": "false" },
      "in as user",
    ],
    [
      "not encrypted, only the document is signed",
      { "saml.encrypt": "false", "saml.assertion.signature": "false", "saml.server.signature": "true" },
      "in as user",
    ],
    [
      "nothing is signed",
      { "saml.encrypt": "false", "saml.assertion.signature": "false", "saml.server.signature": "false" },
      "400 badResponse notSigned",
    ],
    ["RSA with SHA-1", { "saml.signature.algorithm": "RSA_SHA1" }, "400 badResponse algorithm"],
    ["RSA with SHA-512", { "saml.signature.algorithm": "RSA_SHA512" }, "in as user"],
    ["RSA-PSS", { "saml.signature.algorithm": "RSA_SHA256_MGF1" }, "in as user"],
    [
      "exclusive canonicalization with comments",
      { saml_signature_canonicalization_method: "http://www.w3.org/2001/10/xml-exc-c14n#WithComments" },
      "in as user",
    ],
    [
      "inclusive canonicalization",
      { saml_signature_canonicalization_method: "http://www.w3.org/TR/2001/REC-xml-c14n-20010315" },
      "400 badResponse algorithm",
    ],
    [
      "key name is the certificate's subject",
      { "saml.server.signature.keyinfo.xmlSigKeyInfoKeyNameTransformer": "CERT_SUBJECT" },
      "in as user",
    ],
    [
      "key hint in the extensions of the response",
      { "saml.server.signature": "true", "saml.server.signature.keyinfo.ext": "true" },
      "in as user",
    ],
    ["OneTimeUse", { "saml.onetimeuse.condition": "true" }, "in as user"],
    ["no authentication statement", { "saml.authnstatement": "false" }, "400 badResponse malformed"],
    [
      "NameID forced to an email address",
      { saml_name_id_format: "email", saml_force_name_id_format: "true" },
      "400 badResponse noIdentity",
    ],
    [
      "NameID forced to transient",
      { saml_name_id_format: "transient", saml_force_name_id_format: "true" },
      "400 badResponse noIdentity",
    ],
    [
      "NameID by Keycloak's default, the username: the request asks for a persistent one",
      { saml_name_id_format: "username" },
      "in as user",
    ],
    ["the response by artifact", { "saml.artifact.binding": "true" }, "400 badResponse artifact"],
  ] as const)
    sees(name, expected, () => withAttributes(attributes, () => lab.signIn("uma")));
  sees(
    "three sign-ins of one browser are rejected within a minute: the audit log has the reason of each",
    "400 badResponse noIdentity, 400 badResponse noIdentity, 400 badResponse notSigned",
    async () => {
      const browser = new Browser(lab.service);
      const reject = (attributes: Record<string, string>) =>
        lab.realm.withClient({ attributes }, () => browser.signIn("uma"), ENTITY_ID);
      const transient = { saml_name_id_format: "transient", saml_force_name_id_format: "true" };
      const unsigned = {
        "saml.encrypt": "false",
        "saml.assertion.signature": "false",
        "saml.server.signature": "false",
      };
      const pages = [await reject(transient), await reject(transient), await reject(unsigned)];
      const outcomes: string[] = [];
      for (const page of pages) outcomes.push(await lab.outcome(browser, page));
      return outcomes.join(", ");
    },
  );
  sees("NameID is the username, samlIdAttribute names an attribute with the user's id", "in as user", () =>
    lab.realm.withMapper(
      ID_MAPPER,
      () =>
        withAttributes({ saml_name_id_format: "username", saml_force_name_id_format: "true" }, () =>
          lab.withConfiguration({ samlIdAttribute: "userId" }, () => lab.signIn("uma")),
        ),
      ENTITY_ID,
    ),
  );
  sees("only roles are mapped (Keycloak's default): the name is a hash", /^sso-[\da-f]{16}, null$/, async () => {
    const { id, protocolMappers } = await lab.realm.client(ENTITY_ID);
    const others = protocolMappers.filter(({ name }: Representation) => name !== "single role");
    const path = `/clients/${id}/protocol-mappers/models`;
    for (const one of others) await lab.realm.admin("DELETE", `${path}/${one.id}`);
    const me = await (await lab.signInNewBrowser("eve")).me();
    for (const { id: _, ...one } of others) await lab.realm.admin("POST", path, one);
    return `${me?.username}, ${me?.email}`;
  });
  sees("consent is denied", "400 providerRefused status", () =>
    withClient({ consentRequired: true }, async () => {
      const browser = new Browser(lab.service);
      const page = await browser.signIn("uma");
      return await lab.outcome(browser, await browser.submit(page, undefined, { cancel: "No" }));
    }),
  );

  // Keys of Keycloak.
  sees(
    "key rotated at Keycloak: refused, then in with both certificates, then in with the new one",
    "400 badResponse signature, 2, in as user, 1, in as user",
    async () => {
      const removeOlder = await lab.realm.addSigningKey();
      const before = await lab.signIn("uma");
      await lab.configure({ samlIdpMetadataXml: await descriptor() });
      const both = (await certificates()).length;
      const during = await lab.signIn("uma");
      await removeOlder();
      await lab.configure({ samlIdpMetadataXml: await descriptor() });
      return `${before}, ${both}, ${during}, ${(await certificates()).length}, ${await lab.signIn("uma")}`;
    },
  );
  sees("a wrong certificate of the provider", "400 badResponse signature", async () => {
    const right = await certificates();
    const service = (await lab.service.admin("GET", "/auth/sso/config")).body.samlServiceCertificate.certificate;
    await lab.configure({ samlIdpCertificates: [service] });
    const seen = await lab.signIn("uma");
    await lab.configure({ samlIdpCertificates: right });
    return seen;
  });

  // Messages of others.
  sees("wrong audience: the response is for another client", "400 badResponse audience", async () => {
    const other = { ...imported, clientId: "urn:other", protocolMappers: MAPPERS };
    const attributes = { ...imported.attributes, "saml.client.signature": "false", "saml.encrypt": "false" };
    await lab.realm.admin("POST", "/clients", { ...other, attributes });
    const { browser, held } = await hold("uma", (address) => {
      const url = new URL(address);
      const xml = inflateRawSync(Buffer.from(url.searchParams.get("SAMLRequest")!, "base64")).toString();
      const changed = deflateRawSync(xml.replace(ENTITY_ID, "urn:other")).toString("base64");
      const relay = url.searchParams.get("RelayState")!;
      return `${url.origin}${url.pathname}?${new URLSearchParams({ SAMLRequest: changed, RelayState: relay })}`;
    });
    return await lab.outcome(browser, await browser.open(held.url.href, held.form));
  });
  sees("the response is repeated", "400 used", async () => {
    const { browser, held } = await hold("uma");
    // The service deletes the cookie that binds the sign-in to the browser. This browser sends it again.
    browser.storesCookies = false;
    await browser.open(held.url.href, held.form);
    return await lab.outcome(browser, await browser.open(held.url.href, held.form));
  });
  sees("the response of an earlier sign-in is sent for a new one", "400 badResponse inResponseTo", async () => {
    const { held } = await hold("uma");
    const { browser, held: next } = await hold("uma");
    const form = new URLSearchParams({
      SAMLResponse: held.form!.get("SAMLResponse")!,
      RelayState: next.form!.get("RelayState")!,
    });
    return await lab.outcome(browser, await browser.open(next.url.href, form));
  });
  sees("the response comes from another browser", "400 otherBrowser", async () => {
    const { held } = await hold("uma");
    const other = new Browser(lab.service);
    return await lab.outcome(other, await other.open(held.url.href, held.form));
  });
  sees("Keycloak starts the sign-in (IdP-initiated)", "400 unknownRequest", () =>
    withAttributes({ saml_idp_initiated_sso_url_name: "lifecycle" }, async () => {
      const browser = new Browser(lab.service);
      const page = await browser.open(`${lab.realm.url}/protocol/saml/clients/lifecycle`);
      return await lab.outcome(browser, await browser.enterPassword(page, "uma"));
    }),
  );

  // Clocks. The service tolerates a difference of one minute.
  sees("the service's clock is 50 s ahead, then 50 s behind", "in as user, in as user", async () => {
    const ahead = await lab.withClock(50_000, () => lab.signIn("uma"));
    return `${ahead}, ${await lab.withClock(-50_000, () => lab.signIn("uma"))}`;
  });
  sees("the service's clock is 9 min ahead: the assertion expired", "400 badResponse expired", () =>
    lab.withClock(9 * 60_000, () => lab.signIn("uma")),
  );
  sees("the service's clock is 9 min behind", "400 badResponse notYetValid", () =>
    lab.withClock(-9 * 60_000, () => lab.signIn("uma")),
  );

  // Sign-outs.
  sees(
    "sign-out here: Keycloak accepts the LogoutRequest, ends its session and leads back",
    "back at /, password asked",
    async () => {
      const browser = await lab.signInNewBrowser("uma");
      const page = await browser.open((await browser.signOut())!);
      const again = await browser.open(`${ORIGIN}/auth/sso/login`);
      const at = page.view ?? (await lab.outcome(browser, page));
      return `back at ${at}, ${isSignInPage(again) ? "password asked" : "no password asked"}`;
    },
  );
  sees(
    "sign-out at Keycloak: its LogoutRequest ends the session of this browser only",
    "ended, other continues, Keycloak 200: You are logged out",
    async () => {
      const [browser, other] = [await lab.signInNewBrowser("uma"), await lab.signInNewBrowser("uma")];
      const page = await browser.open(`${lab.realm.url}/protocol/openid-connect/logout`);
      const end = await browser.submit(page, undefined, { confirmLogout: "Logout" });
      const own = (await browser.me()) ? "continues" : "ended";
      return `${own}, other ${(await other.me()) ? "continues" : "ended"}, ${await lab.outcome(browser, end)}`;
    },
  );
  sees(
    "an administrator ends the session at Keycloak: a redirect needs the browser, so ours continues",
    "continues",
    async () => {
      const browser = await lab.signInNewBrowser("uma");
      const { id } = await lab.realm.user("uma");
      await lab.realm.admin("POST", `/users/${id}/logout`, {});
      return (await browser.me()) ? "continues" : "ended";
    },
  );

  // Passwords.
  sees(
    "ssoOnlyMode: passwords are off, except for the bootstrap administrator",
    "bootstrap 200, other 403",
    async () => {
      await lab.signIn("ada");
      const user = { username: "local", password: "a-long-enough-passphrase", role: "user" };
      await lab.service.admin("POST", "/auth/users", user);
      return await lab.withConfiguration({ ssoOnlyMode: true }, async () => {
        const { username, password } = user;
        const { status } = await lab.service.call("POST", "/auth/login", { body: { username, password } });
        return `bootstrap ${await lab.passwordStatus()}, other ${status}`;
      });
    },
  );
});

const ROLE_MAPPING = {
  "Lifecycle.Admin": "admin",
  "Lifecycle.Auditor": "auditor",
  "Lifecycle.Operator": "operator",
  "Lifecycle.User": "user",
};

const mapper = (name: string, protocolMapper: string, config: Record<string, string>) => ({
  name,
  protocol: "saml",
  protocolMapper,
  config,
});
const property = (name: string, user: string, attribute: string) =>
  mapper(name, "saml-user-property-mapper", {
    "user.attribute": user,
    "attribute.name": attribute,
    "attribute.nameformat": "Basic",
  });
const MAPPERS = [
  property("username", "username", "username"),
  property("X500 email", "email", "urn:oid:1.2.840.113549.1.9.1"),
  mapper("single role", "saml-role-list-mapper", {
    single: "true",
    "attribute.name": "Role",
    "attribute.nameformat": "Basic",
  }),
];
const ID_MAPPER = property("user id", "id", "userId");
const GROUPS_MAPPER = mapper("groups", "saml-group-membership-mapper", {
  single: "true",
  "full.path": "true",
  "attribute.name": "member",
  "attribute.nameformat": "Basic",
});
