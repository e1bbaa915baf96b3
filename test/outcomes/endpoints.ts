/**
 * The requests of every endpoint that changes something. Each has its preparation, and how to read whether the change happened.
 * outcomes.test.ts sends them during faults of storage and of the key vault.
 */
import type { Service } from "../support/service.ts";
import { ruleEndpoints, sentAlertEndpoints, snoozeEndpoints } from "./alert-endpoints.ts";
import { auditStreamEndpoints } from "./audit-stream-endpoints.ts";
import { b2cEndpoints } from "./b2c-endpoints.ts";
import type { ChangingEndpoint } from "./changing-endpoint.ts";
import { complianceEndpoints } from "./compliance-endpoints.ts";
import { certificateEndpoints, scanEndpoints, subscriptionEndpoints } from "./discovery-endpoints.ts";
import { createEndpointContext } from "./endpoint-context.ts";
import { rotationEndpoints } from "./rotation-endpoints.ts";
import { devopsEndpoints, retentionEndpoints, settingsEndpoints } from "./settings-endpoints.ts";
import { secondFactorEndpoints, sessionAndTokenEndpoints, signInEndpoints } from "./sign-in-endpoints.ts";
import { syncEndpoints } from "./sync-endpoints.ts";
import { ssoEndpoints, userEndpoints } from "./user-endpoints.ts";

/**
 * Returns the endpoints. The service must have scanned a vault `kv-one` with a secret `db` and a certificate `www`, and the secret `SECRET`, which
 * contains the credential of the discovered application `APPLICATION` (see `rotation-endpoints.ts`).
 */
export function changingEndpoints(service: Service, token: () => string): ChangingEndpoint[] {
  const context = createEndpointContext(service, token);
  return [
    ...signInEndpoints(context),
    ...secondFactorEndpoints(context),
    ...sessionAndTokenEndpoints(context),
    ...userEndpoints(context),
    ...ssoEndpoints(context),
    ...subscriptionEndpoints(context),
    ...ruleEndpoints(context),
    ...snoozeEndpoints(context),
    ...sentAlertEndpoints(context),
    ...auditStreamEndpoints(context),
    ...complianceEndpoints(context),
    ...retentionEndpoints(context),
    ...devopsEndpoints(context),
    ...b2cEndpoints(context),
    ...syncEndpoints(context),
    ...rotationEndpoints(context),
    ...settingsEndpoints(context),
    ...scanEndpoints(context),
    ...certificateEndpoints(context),
  ];
}
