import { MINUTE_MS } from "../../shared/platform/time.ts";
import { licence } from "../../test/support/licence.ts";
import { ADMIN, Service } from "../../test/support/service.ts";
import { leaveSessionsUnused } from "../../test/support/users.ts";
import { atMost, type Figure, type Section } from "./section.ts";
import { bearer, loaded, loadedBy } from "./start-up.ts";

/** An endpoint whose own cost is the same for all callers. */
const PATH = "/alerts/rules";

/** Measures a call by the type of its credential, and the open endpoints of single sign-on. */
export async function credentials(): Promise<Section> {
  const service = await Service.start({
    tableProxy: true,
    env: {
      RATE_LIMIT_PER_MINUTE: "10000",
      RATE_LIMIT_PER_HOUR: "10000",
      LICENSE_KEY: await licence(),
      PUBLIC_BASE_URL: "http://localhost:7071",
    },
  });
  try {
    const token = await service.signIn(ADMIN);
    const { issuer, clientId, clientSecret } = service.cloud.oidc;
    const configured = await service.call("PUT", "/auth/sso/config", {
      token,
      body: { isEnabled: true, oidcIssuer: issuer, oidcClientId: clientId, oidcClientSecret: clientSecret },
    });
    if (configured.status !== 200) throw new Error(`Single sign-on is not configured: ${configured.text}`);
    const made = await service.call("POST", "/auth/tokens", { token, body: { name: "bench" } });
    const signedIn = await service.call("POST", "/auth/login", {
      body: { ...ADMIN, session: true },
      headers: { "Sec-Fetch-Site": "same-origin" },
    });
    const cookie = { Cookie: signedIn.headers.getSetCookie()[0]!.split(";")[0]! };
    const apiToken = bearer(made.body.token);

    const requests = async (headers: Record<string, string>): Promise<number> => {
      service.forgetTables();
      const { status } = await service.call("GET", PATH, { headers });
      if (status !== 200) throw new Error(`${PATH} answered ${status}`);
      return service.tableRequests().length;
    };
    await requests(bearer(token));
    const ofToken = await requests(bearer(token));
    const ofSession = await requests(cookie);
    await leaveSessionsUnused(service, ADMIN.username, 10 * MINUTE_MS);
    const movingSession = await requests(cookie);
    const firstOfApiToken = await requests(apiToken);
    const ofApiToken = await requests(apiToken);
    const beyond = (what: string, count: number, limit: number): Figure => ({
      what: `table requests of a call, ${what}`,
      value: String(count),
      comparedWith: `${ofToken} by a token`,
      bound: atMost(count, limit),
    });
    return {
      title: "Calls by credential",
      how: `GET ${PATH} with rate limits. A session is written at most every five minutes, an API token on its first call of a day. Loaded code is that of a new process.`,
      figures: [
        { what: "table requests of a call, by a token", value: String(ofToken), comparedWith: "" },
        beyond("by a session", ofSession, ofToken),
        beyond("by a session, when its end is moved", movingSession, ofToken + 1),
        beyond("by an API token", ofApiToken, ofToken),
        beyond("by an API token, the first of the day", firstOfApiToken, ofToken + 1),
        loaded("a call with a session", await loadedBy(service, PATH, cookie), SDKS),
        loaded("a call with an API token", await loadedBy(service, PATH, apiToken), SDKS),
        loaded("/auth/sso/status", await loadedBy(service, "/auth/sso/status"), SDKS),
        loaded("/auth/sso/metadata", await loadedBy(service, "/auth/sso/metadata"), SDKS),
        loaded("/auth/sso/login, by OIDC", await loadedBy(service, "/auth/sso/login"), SDKS),
      ],
    };
  } finally {
    await service.stop();
  }
}

/** SDKs that these endpoints may load. None of them is for key vaults. */
const SDKS = ["@azure/data-tables"];
