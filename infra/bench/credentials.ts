import { MINUTE_MS } from "../../shared/platform/time.ts";
import { licence } from "../../test/support/licence.ts";
import { ADMIN, Service } from "../../test/support/service.ts";
import { leaveSessionsUnused } from "../../test/support/users.ts";
import { atMost, type Figure, type Section } from "./section.ts";
import { bearer, loadedBy, SDKS_OF_SIGNED_ROWS, sdksFigure } from "./start-up.ts";

/** The measured endpoint. Its own cost is the same for all callers, so only the cost of authentication differs. */
const PATH = "/alerts/rules";

/**
 * Benchmark `credentials`: counts the table requests of the same call with each type of credential (access token, session
 * cookie, API token). Also lists the SDKs that such calls and the public endpoints of single sign-on load.
 */
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
    const createdToken = await service.call("POST", "/auth/tokens", { token, body: { name: "bench" } });
    const signedIn = await service.call("POST", "/auth/login", {
      body: { ...ADMIN, session: true },
      headers: { "Sec-Fetch-Site": "same-origin" },
    });
    const cookie = { Cookie: signedIn.headers.getSetCookie()[0]!.split(";")[0]! };
    const apiToken = bearer(createdToken.body.token);

    const countRequests = async (headers: Record<string, string>): Promise<number> => {
      service.clearTableRequests();
      const { status } = await service.call("GET", PATH, { headers });
      if (status !== 200) throw new Error(`${PATH} answered ${status}`);
      return service.tableRequests().length;
    };
    await countRequests(bearer(token)); // Warms up the endpoint.
    const withAccessToken = await countRequests(bearer(token));
    const withSession = await countRequests(cookie);
    // A call extends a session that was not extended for five minutes ("its end is moved"), which writes the user's row.
    await leaveSessionsUnused(service, ADMIN.username, 10 * MINUTE_MS);
    const withExtendedSession = await countRequests(cookie);
    const withApiTokenFirst = await countRequests(apiToken);
    const withApiToken = await countRequests(apiToken);
    const requestsFigure = (what: string, count: number, limit: number): Figure => ({
      what: `table requests of a call, ${what}`,
      value: String(count),
      comparedWith: `${withAccessToken} by a token`,
      bound: atMost(count, limit),
    });
    return {
      title: "Calls by credential",
      how: `GET ${PATH} with rate limits. A session is written at most every five minutes, an API token on its first call of a day. Loaded code is that of a new process.`,
      figures: [
        { what: "table requests of a call, by a token", value: String(withAccessToken), comparedWith: "" },
        requestsFigure("by a session", withSession, withAccessToken),
        requestsFigure("by a session, when its end is moved", withExtendedSession, withAccessToken + 2),
        requestsFigure("by an API token", withApiToken, withAccessToken),
        requestsFigure("by an API token, the first of the day", withApiTokenFirst, withAccessToken + 2),
        sdksFigure("a call with a session", await loadedBy(service, PATH, cookie), ALLOWED_SDKS),
        sdksFigure("a call with an API token", await loadedBy(service, PATH, apiToken), ALLOWED_SDKS),
        sdksFigure("/auth/sso/status", await loadedBy(service, "/auth/sso/status"), ALLOWED_SDKS),
        sdksFigure("/auth/sso/metadata", await loadedBy(service, "/auth/sso/metadata"), ALLOWED_SDKS),
        sdksFigure("/auth/sso/login, by OIDC", await loadedBy(service, "/auth/sso/login"), ALLOWED_SDKS),
      ],
    };
  } finally {
    await service.stop();
  }
}

/** SDKs that these endpoints may load: none that reads the vaults of the inventory. */
const ALLOWED_SDKS = ["@azure/app-configuration", ...SDKS_OF_SIGNED_ROWS];
