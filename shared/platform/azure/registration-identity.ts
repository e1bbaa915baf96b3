import type { AccessToken, TokenCredential } from "@azure/core-auth";
import * as z from "zod";
import type { Config } from "../config/config.ts";
import { SECOND_MS } from "../time.ts";
import { asCloudFailure, type CallTarget, type CloudFailure, failure, malformedAnswer, retryAfter } from "./failure.ts";
import type { Identity } from "./identity.ts";
import { type Registration, requestToken, SIGN_IN_FAILURES } from "./token-endpoint.ts";

/** Milliseconds before expiry from which a token is renewed. */
const RENEW_BEFORE_MS = 300 * SECOND_MS;

const tokenAnswer = z.object({ access_token: z.string().min(1), expires_in: z.number().positive() });
const errorAnswer = z.object({ error_codes: z.array(z.int()).min(1) });

/** Remedies for a rejected sign-in, by the number of its AADSTS error code. */
const REMEDIES: Readonly<Record<number, string>> = {
  7000215: "Save the registration with the value of a valid client secret. The value is not the secret's ID.",
  7000222: "Add a new client secret to the application and save the registration with it.",
  700016: "Check clientId and tenantId: the application must be registered in this tenant.",
  7000112: "Enable the application's service principal in the tenant.",
  7000229: "Grant admin consent for the application in the tenant, which creates its service principal.",
  90002: "Check tenantId, and that the tenant is in the cloud that AZURE_CLOUD names.",
  53003: "Exempt the application from the Conditional Access policy that blocks it.",
};
const WRONG_SECRET: Readonly<Record<number, string>> = {
  7000215: "the client secret is wrong",
  7000222: "the client secret has expired",
};

/**
 * Creates the identity of an application in another tenant, such as an Azure AD B2C tenant, which signs in with a client secret
 * to call Microsoft Graph there. Caches its token in memory.
 *
 * Does not use @azure/identity, because its errors do not say whether the tenant, the application or the secret is wrong.
 */
export function createRegistrationIdentity(
  config: Pick<Config, "cloud">,
  registration: Registration,
): Pick<Identity, "credential"> {
  const target: CallTarget = {
    operation: "sign in to the tenant",
    resource: `application ${registration.clientId} in the tenant ${registration.tenantId}`,
  };
  let cachedToken: AccessToken | undefined;
  let pendingRequest: Promise<AccessToken> | undefined;

  async function requestNewToken(): Promise<AccessToken> {
    let answer: Awaited<ReturnType<typeof requestToken>>;
    try {
      answer = await requestToken(config, registration);
    } catch (error) {
      throw asCloudFailure(error, target);
    }
    const { data } = tokenAnswer.safeParse(answer.body);
    if (answer.status !== 200) throw signInFailure(answer, target);
    if (!data) throw malformedAnswer(target, "the response has no token");
    return { token: data.access_token, expiresOnTimestamp: Date.now() + data.expires_in * SECOND_MS };
  }

  const credential: TokenCredential = {
    async getToken() {
      if (cachedToken && Date.now() < cachedToken.expiresOnTimestamp - RENEW_BEFORE_MS) return cachedToken;
      pendingRequest ??= requestNewToken().finally(() => {
        pendingRequest = undefined;
      });
      cachedToken = await pendingRequest;
      return cachedToken;
    },
  };
  return { credential: async () => credential };
}

function signInFailure(answer: Awaited<ReturnType<typeof requestToken>>, target: CallTarget): CloudFailure {
  const { status, body, header } = answer;
  const code = errorAnswer.safeParse(body).data?.error_codes[0];
  if (status === 429) {
    return failure("throttled", target, "the sign-in service returned status 429 (too many requests)", {
      remedy: "No action needed: the service retries later.",
      retryAfterSeconds: retryAfter({ status, body: "", header }),
    });
  }
  if (code === undefined || status >= 500) {
    return failure("unreachable", target, `the sign-in service returned status ${status}`, {
      remedy: "Check https://status.azure.com for an outage. The service retries later.",
    });
  }
  const reason = WRONG_SECRET[code] ?? toSentenceEnd(SIGN_IN_FAILURES[code]) ?? "the sign-in was rejected";
  return failure("unauthenticated", target, reason, {
    remedy: REMEDIES[code] ?? "Look the code up at https://login.microsoftonline.com/error.",
    cloudCode: `AADSTS${code}`,
  });
}

/** Turns a sentence into the end of another sentence: lower-case first letter, no full stop. */
const toSentenceEnd = (text: string | undefined): string | undefined =>
  text && `${text[0]!.toLowerCase()}${text.slice(1).replace(/\.$/, "")}`;
