import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { inflateRawSync } from "node:zlib";
import { Browser, ORIGIN, outcomeOf } from "../../../test/sso/keycloak/keycloak.ts";
import { onPath } from "../../../test/support/chromium.ts";
import { licence } from "../../../test/support/licence.ts";
import { Service } from "../../../test/support/service.ts";
import { caseRunner, type Part } from "../part.ts";
import { runPython } from "../python.ts";

// SAML with pysaml2: it validates every message of the service against the schema, and is the identity provider of the
// sign-ins.

const ROLE_MAPPING = { Admins: "admin", Everyone: "user" };
const RSA_SHA512 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512";
const RSA_SHA1 = "http://www.w3.org/2000/09/xmldsig#rsa-sha1";

/** How the identity provider answers a sign-in. */
interface Answer {
  attributes?: Record<string, string[]>;
  /** The signed parts: `assertion`, `response` or both. Default: the assertion. */
  sign?: ("assertion" | "response")[];
  encrypt?: boolean;
  algorithm?: string;
}

export const part: Part = {
  name: "pysaml2",
  description: "pysaml2 holds SAML messages and metadata to the schema, and is an identity provider",
  programs: ["pysaml2"],
  needs: ["python", "xmlsec1"],
  limits: [
    "pysaml2 encrypts assertions with Triple DES, and has no setting for another algorithm. The service rejects Triple DES, so turn encryption off in providers that pysaml2 runs.",
  ],
  async *run() {
    const runCase = caseRunner("pysaml2");
    const folder = mkdtempSync(path.join(tmpdir(), "pysaml2-"));
    const xmlsec1 = onPath("xmlsec1", process.env)!;
    /** Runs an action of python/saml_idp.py, which lists them. */
    // biome-ignore lint/suspicious/noExplicitAny: each action returns another value
    const idp = async (action: string, given: object = {}): Promise<any> =>
      JSON.parse(await runPython("saml_idp.py", { action, folder, xmlsec1, ...given }));
    const validate = (schema: "protocol" | "metadata", xml: string): Promise<string> =>
      idp("validate", { schema, xml });
    const service = await Service.start({
      company: { subscriptions: [] },
      env: { LICENSE_KEY: await licence(), PUBLIC_BASE_URL: ORIGIN, TRUSTED_PROXY_HOPS: "2" },
    });
    try {
      yield await runCase(
        "the provider's metadata is imported, the connection test passes",
        "200, passed",
        async () => {
          const { status, text } = await service.admin("PUT", "/auth/sso/config", {
            providerType: "saml",
            isEnabled: true,
            autoCreateUsers: true,
            defaultRole: null,
            rolesClaim: "Role",
            roleMapping: ROLE_MAPPING,
            samlIdpMetadataXml: await idp("metadata"),
            samlSignRequests: true,
          });
          if (status !== 200) return `${status} ${text}`;
          const { checks } = (await service.admin("POST", "/auth/sso/config/test", {})).body;
          const failed = checks.find(({ passed }: { passed: boolean }) => !passed);
          return `${status}, ${failed ? `${failed.name}: ${failed.detail}` : "passed"}`;
        },
      );
      const metadata = (await service.call("GET", "/auth/sso/metadata")).text;
      writeFileSync(path.join(folder, "service.xml"), metadata);
      yield await runCase("our metadata follows the schema", "valid", () => validate("metadata", metadata));
      yield await runCase("metadata with another order of elements is invalid", /^error: failed validating/, () => {
        const service = /<(\w+:)?AssertionConsumerService [^>]*>(<\/\1AssertionConsumerService>)?/.exec(metadata)![0];
        return validate(
          "metadata",
          metadata.replace(service, "").replace(/(<(\w+:)?SPSSODescriptor[^>]*>)/, `$1${service}`),
        );
      });

      /**
       * Starts a sign-in.
       * @returns The browser, and the query with which it is sent to the provider
       */
      const start = async () => {
        const browser = new Browser(service);
        const answer = await browser.send(new URL(`${ORIGIN}/auth/sso/login`));
        const { searchParams } = new URL(answer.headers.get("location")!);
        return { browser, query: Object.fromEntries(searchParams) };
      };
      /** Decodes a message of the binding HTTP-Redirect. */
      const xmlOf = (message: string) => inflateRawSync(Buffer.from(message, "base64")).toString();
      const { query } = await start();
      const request = xmlOf(query.SAMLRequest!);
      yield await runCase("AuthnRequest follows the schema", "valid", () => validate("protocol", request));
      yield await runCase(
        "an AuthnRequest with an unfilled template is invalid",
        /^error: failed validating .*ForceAuthn/,
        () => validate("protocol", request.replace(/AuthnRequest /, 'AuthnRequest ForceAuthn="{ForceAuthn}" ')),
      );
      yield await runCase("AuthnRequest: signature and members", `${ORIGIN}/auth/sso/callback`, async () => {
        // Fails if the request is not signed correctly.
        const { acs } = await idp("request", { query });
        return acs;
      });
      yield await runCase(
        "AuthnRequest with another RelayState is rejected",
        /^error: .*not signed correctly/,
        async () => JSON.stringify(await idp("request", { query: { ...query, RelayState: "another" } })),
      );

      /**
       * Signs a person in.
       * @returns the browser and what the sign-in led to
       */
      const signIn = async ({ attributes = {}, sign = ["assertion"], encrypt = false, algorithm }: Answer) => {
        const { browser, query } = await start();
        const all = { Role: ["Everyone"], uid: ["uma"], mail: ["uma@acme.example"], ...attributes };
        const xml: string = await idp("respond", { query, attributes: all, sign, encrypt, algorithm });
        const form = { SAMLResponse: Buffer.from(xml).toString("base64"), RelayState: query.RelayState! };
        const page = await browser.open(`${ORIGIN}/auth/sso/callback`, new URLSearchParams(form));
        return { browser, xml, outcome: await outcomeOf(service, browser, page) };
      };
      for (const [name, answer, expected] of [
        ["assertion signed", {}, "in as user"],
        ["role mapped to admin", { attributes: { Role: ["Admins"] } }, "in as admin"],
        ["response signed", { sign: ["response"] }, "in as user"],
        ["assertion and response signed", { sign: ["assertion", "response"] }, "in as user"],
        ["RSA with SHA-512", { algorithm: RSA_SHA512 }, "in as user"],
        ["RSA with SHA-1", { algorithm: RSA_SHA1 }, "400 badResponse algorithm"],
        ["nothing signed", { sign: [] }, "400 badResponse notSigned"],
        ["no mapped role", { attributes: { Role: ["Strangers"] } }, "403 noRole"],
        ["encrypted with Triple DES", { encrypt: true }, /^400 badResponse /],
      ] as [string, Answer, string | RegExp][])
        yield await runCase(`sign-in: ${name}`, expected, async () => (await signIn(answer)).outcome);
      yield await runCase("sign-in: username and email address", "uma, uma@acme.example", async () => {
        const me = await (await signIn({})).browser.me();
        return `${me?.username}, ${me?.email}`;
      });

      yield await runCase(
        "sign-out here: LogoutRequest, and the answer leads back",
        "valid, same person, back at /",
        async () => {
          const { browser } = await signIn({});
          const { searchParams } = new URL((await browser.signOut())!);
          const query = Object.fromEntries(searchParams);
          const schema = await validate("protocol", xmlOf(query.SAMLRequest!));
          const { same, location } = await idp("logout", { query });
          const page = await browser.open(location);
          return `${schema}, ${same ? "same" : "another"} person, back at ${page.view ?? page.text}`;
        },
      );
      yield await runCase("sign-out at the provider ends the session", "ended, valid answer", async () => {
        const { browser, xml } = await signIn({});
        const sessionIndexes = [/SessionIndex="([^"]+)"/.exec(xml)![1]];
        const answer = await browser.send(new URL(await idp("startLogout", { sessionIndexes })));
        const location = answer.headers.get("location");
        const message = location ? new URL(location).searchParams.get("SAMLResponse") : null;
        const schema = message ? await validate("protocol", xmlOf(message)) : `no answer (${answer.status})`;
        return `${(await browser.me()) ? "continues" : "ended"}, ${schema} answer`;
      });
    } finally {
      await service.stop();
    }
  },
};
