import type { AccessToken, TokenCredential } from "@azure/core-auth";
import * as z from "zod";
import type { Config } from "../config/config.ts";
import { SECOND_MS } from "../time.ts";
import { asCloudFailure, type CallTarget, type CloudFailure, failure, malformedAnswer, retryAfter } from "./failure.ts";
import type { Identity } from "./identity.ts";
import { type Registration, requestToken, SIGN_IN_REFUSALS } from "./token-endpoint.ts";

/** Milliseconds before expiry from which a token is renewed. */
const RENEW_BEFORE_MS = 300 * SECOND_MS;

const tokenAnswer = z.object({ access_token: z.string().min(1), expires_in: z.number().positive() });
const errorAnswer = z.object({ error_codes: z.array(z.int()).min(1) });

/** Remedies for a rejected sign-in, by error code. */
const REMEDIES: Readonly<Record<number, string>> = {
  7000215: "Save the registration with the value of a client secret that is valid; its id is not its value.",
  7000222: "Add a new client secret to the application and save the registration with it.",
  700016: "Check clientId and tenantId: the application must be registered in this very tenant.",
  7000112: "Enable the application's service principal in the tenant.",
  7000229: "Grant admin consent for the application in the tenant, which makes its service principal.",
  90002: "Check tenantId, and that the tenant is in the cloud that AZURE_CLOUD names.",
  53003: "Exempt the application from the Conditional Access policy that refuses it.",
};
const WRONG_SECRET: Readonly<Record<number, string>> = {
  7000215: "the client secret is wrong",
  7000222: "the client secret has expired",
};

/**
 * An application of another tenant that signs in with a client secret, to call Microsoft Graph there. Only this object stores
 * its tokens.
 *
 * The identity library is not used, because it hides whether tenant, application or secret is wrong.
 */
export function createRegistrationIdentity(
  config: Pick<Config, "cloud">,
  registration: Registration,
): Pick<Identity, "credential"> {
  const target: CallTarget = {
    operation: "sign in to the tenant",
    resource: `application ${registration.clientId} in the tenant ${registration.tenantId}`,
  };
  let known: AccessToken | undefined;
  let asked: Promise<AccessToken> | undefined;

  async function ask(): Promise<AccessToken> {
    let answer: Awaited<ReturnType<typeof requestToken>>;
    try {
      answer = await requestToken(config, registration);
    } catch (error) {
      throw asCloudFailure(error, target);
    }
    const { data } = tokenAnswer.safeParse(answer.body);
    if (answer.status !== 200) throw refusal(answer, target);
    if (!data) throw malformedAnswer(target, "the answer has no token");
    return { token: data.access_token, expiresOnTimestamp: Date.now() + data.expires_in * SECOND_MS };
  }

  const credential: TokenCredential = {
    async getToken() {
      if (known && Date.now() < known.expiresOnTimestamp - RENEW_BEFORE_MS) return known;
      asked ??= ask().finally(() => {
        asked = undefined;
      });
      known = await asked;
      return known;
    },
  };
  return { credential: async () => credential };
}

function refusal(answer: Awaited<ReturnType<typeof requestToken>>, target: CallTarget): CloudFailure {
  const { status, body, header } = answer;
  const code = errorAnswer.safeParse(body).data?.error_codes[0];
  if (status === 429) {
    return failure("throttled", target, "the service answered 429, too many requests", {
      remedy: "No action needed: the service retries later.",
      retryAfterSeconds: retryAfter({ status, body: "", header }),
    });
  }
  if (code === undefined || status >= 500) {
    return failure("unreachable", target, `the sign-in service answered ${status}`, {
      remedy: "Look for an outage at https://status.azure.com; it is tried again later.",
    });
  }
  const reason = WRONG_SECRET[code] ?? sentence(SIGN_IN_REFUSALS[code]) ?? "it was refused";
  return failure("unauthenticated", target, reason, {
    remedy: REMEDIES[code] ?? "Look the code up at https://login.microsoftonline.com/error.",
    cloudCode: `AADSTS${code}`,
  });
}

/** Returns a sentence as the end of another sentence. */
const sentence = (text: string | undefined): string | undefined =>
  text && `${text[0]!.toLowerCase()}${text.slice(1).replace(/\.$/, "")}`;
