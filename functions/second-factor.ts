import * as z from "zod";
import {
  FactorChallenge,
  IdentityProof,
  MethodAdded,
  NewPasskey,
  PasskeyStarted,
  RecoveryCodes,
  SecondFactorView,
  TotpCode,
  TotpStarted,
} from "../shared/access/second-factor-api.ts";
import type { Endpoint } from "../shared/platform/http/endpoint.ts";
import { Deleted, deleted, ok } from "../shared/platform/http/reply.ts";
import { endpoint } from "./declare.ts";
import type { Services } from "./services.ts";

// Endpoints of the second factor: a user's own, and its reset by administrators. POST /auth/login (auth.ts) asks for it.

/**
 * Members that the endpoints of a user's own second factors have in common. A person who signed in can call them (`interactive`:
 * API tokens are rejected), also before a required second factor was added.
 */
const ownFactors = {
  tag: "Second factor",
  access: "user",
  tier: "core",
  interactive: true,
  beforeEnrollment: true,
} as const;
/** Example of a request that proves the user's identity with the password. */
const proof = { body: { currentPassword: "the current password" } };
const PROOF_NEEDED = "Needs your password, and a second factor if you have one.";

const getSecondFactor = endpoint({
  ...ownFactors,
  name: "getSecondFactor",
  method: "GET",
  route: "auth/me/second-factor",
  summary: "List your second factors",
  description:
    "Returns your authenticator app and passkeys, the number of unused recovery codes, and which methods can be added.",
  responds: { 200: SecondFactorView },
  handle: async ({ actor, services }) => ok(await services.access.secondFactor.view(actor)),
});

const challengeSecondFactor = endpoint({
  ...ownFactors,
  name: "challengeSecondFactor",
  method: "POST",
  route: "auth/me/second-factor/challenge",
  summary: "Create a passkey challenge",
  description:
    "Returns the second factors that you can send with a change of your second factors, and a challenge for your passkeys, which expires after five minutes. Changes nothing. A sign-in gets its challenge from POST /auth/login.",
  responds: { 200: FactorChallenge },
  handle: async ({ actor, services }) => ok(await services.access.secondFactor.challenge(actor)),
});

const startTotp = endpoint({
  ...ownFactors,
  name: "startTotp",
  method: "POST",
  route: "auth/me/second-factor/totp",
  summary: "Start adding an authenticator app",
  description: `Returns a secret for an authenticator app (TOTP, RFC 6238). Confirm it with a code within 15 minutes: POST /auth/me/second-factor/totp/confirm. Until then, sign-ins don't change. A confirmed secret replaces an earlier app. ${PROOF_NEEDED} Returns 409 if the service has no key vault of its own, and for users without a password.`,
  body: IdentityProof,
  example: proof,
  responds: { 200: TotpStarted },
  problems: ["conflict", "tooManyAttempts"],
  handle: async ({ body, actor, caller, services }) =>
    ok(await services.access.secondFactor.startTotp(actor, body, caller)),
});

const confirmTotp = endpoint({
  ...ownFactors,
  name: "confirmTotp",
  method: "POST",
  route: "auth/me/second-factor/totp/confirm",
  summary: "Finish adding an authenticator app",
  description:
    "Enables the authenticator app if the code is correct. Later sign-ins with the password need a second factor; tokens and sessions stay valid. The code can't be used for a sign-in.",
  body: TotpCode,
  example: { body: { code: "123456" } },
  responds: { 200: MethodAdded },
  problems: ["conflict"],
  handle: async ({ body, actor, caller, services }) =>
    ok(await services.access.secondFactor.confirmTotp(actor, body.code, caller)),
});

const startPasskey = endpoint({
  ...ownFactors,
  name: "startPasskey",
  method: "POST",
  route: "auth/me/second-factor/passkeys",
  summary: "Start adding a passkey",
  description: `Returns the options for \`navigator.credentials.create\`, with a challenge for five minutes. Send the browser's answer to POST /auth/me/second-factor/passkeys/confirm. ${PROOF_NEEDED} Returns 409 without a PUBLIC_BASE_URL with https and a host name, and for users without a password.`,
  body: IdentityProof,
  example: proof,
  responds: { 200: PasskeyStarted },
  problems: ["conflict", "tooManyAttempts"],
  handle: async ({ body, actor, caller, services }) =>
    ok(await services.access.secondFactor.startPasskey(actor, body, caller)),
});

const confirmPasskey = endpoint({
  ...ownFactors,
  name: "confirmPasskey",
  method: "POST",
  route: "auth/me/second-factor/passkeys/confirm",
  summary: "Finish adding a passkey",
  description:
    "Adds the passkey. Later sign-ins with the password need a second factor; tokens and sessions stay valid. A user can have up to 10 passkeys.",
  body: NewPasskey,
  example: {
    body: {
      name: "Laptop",
      passkey: {
        id: "nA",
        rawId: "nA",
        type: "public-key",
        response: { clientDataJSON: "e30", attestationObject: "oA" },
        clientExtensionResults: {},
      },
    },
  },
  responds: { 200: MethodAdded },
  problems: ["alreadyExists", "conflict"],
  handle: async ({ body, actor, caller, services }) =>
    ok(await services.access.secondFactor.confirmPasskey(actor, body, caller)),
});

const removeSecondFactor = endpoint({
  ...ownFactors,
  name: "removeSecondFactor",
  method: "POST",
  route: "auth/me/second-factor/methods/{method_id}/remove",
  summary: "Remove a second factor",
  description: `Removes your authenticator app (\`totp\`) or a passkey. With the last one, the recovery codes are deleted too, and sign-ins need the password only. ${PROOF_NEEDED}`,
  params: z.object({ method_id: z.string().max(64) }),
  body: IdentityProof,
  example: { params: { method_id: "no-such-method" }, ...proof },
  responds: { 200: Deleted },
  problems: ["notFound", "conflict", "tooManyAttempts"],
  handle: async ({ params, body, actor, caller, services }) => {
    await services.access.secondFactor.remove(actor, params.method_id, body, caller);
    return deleted();
  },
});

const replaceRecoveryCodes = endpoint({
  ...ownFactors,
  name: "replaceRecoveryCodes",
  method: "POST",
  route: "auth/me/second-factor/recovery-codes",
  summary: "Replace the recovery codes",
  description: `Returns ten new recovery codes, once. Earlier codes stop working. ${PROOF_NEEDED} Returns 409 for users without a second factor.`,
  body: IdentityProof,
  example: proof,
  responds: { 200: RecoveryCodes },
  problems: ["conflict", "tooManyAttempts"],
  handle: async ({ body, actor, caller, services }) =>
    ok(await services.access.secondFactor.replaceRecoveryCodes(actor, body, caller)),
});

const resetSecondFactor = endpoint({
  name: "resetSecondFactor",
  method: "DELETE",
  route: "auth/users/{user_id}/second-factor",
  summary: "Reset a user's second factor",
  description:
    "Removes all second factors and recovery codes of a user who lost them, and ends all tokens and sessions on every instance at once. API tokens stay valid. The next sign-in needs the password only. Returns 409 for your own second factor, and 404 for a user without one.",
  tag: "Users",
  access: "admin",
  tier: "pro",
  interactive: true,
  params: z.object({ user_id: z.string() }),
  // Guarded requests need the confirmations that the settings requireStepUp and requireApproval require.
  guarded: ({ params, services }) => services.access.administrators.isAdministrator(params.user_id),
  example: { params: { user_id: "no.such.user" } },
  responds: { 200: Deleted },
  problems: ["notFound", "conflict"],
  handle: async ({ params, caller, services }) => {
    await services.access.secondFactor.reset(params.user_id, caller);
    return deleted();
  },
});

export const endpoints: Endpoint<Services>[] = [
  getSecondFactor,
  challengeSecondFactor,
  startTotp,
  confirmTotp,
  startPasskey,
  confirmPasskey,
  removeSecondFactor,
  replaceRecoveryCodes,
  resetSecondFactor,
];
