import { Secret, TOTP } from "otpauth";
import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import type { ChangingEndpoint } from "./changing-endpoint.ts";
import { type EndpointContext, requireSuccess } from "./endpoint-context.ts";
import { createUser, listSessions, PASSWORD, stateOfTokenRevocation } from "./test-users.ts";

/**
 * Returns the entries for sign-ins with a password (for a token and for a browser session), sign-out, and the password change.
 * outcomes.test.ts sends their requests during faults of storage. Requests that hash a password are slow, so they are tested
 * only with the faults that lose an answer or cut it off (`LostAnswer`, `CutAnswer`).
 *
 * An entry prepares a request. It says with which status the request succeeds, with which statuses a repetition may answer, how
 * to read whether the change happened (`state`), and the type of its audit entries (`event`). changing-endpoint.ts has the
 * details.
 */
export function signInEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { services, nextNumber } = context;
  return [
    {
      endpoint: "POST /auth/login",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const { username } = await createUser(context);
        const signedIn = async () =>
          (await services().tables.get(User, USERS_PARTITION, username))?.lastSignInAt
            ? ("done" as const)
            : ("undone" as const);
        return {
          method: "POST",
          path: "/auth/login",
          options: {
            body: { username, password: PASSWORD },
            // From changing addresses, because the sign-ins of one address are limited.
            headers: { "X-Forwarded-For": `192.0.2.${nextNumber() % 250}` },
          },
          status: 200,
          allowedOnRepeat: [200],
          state: signedIn,
          event: "user.signedIn",
          // A sign-in is recorded once, when it has succeeded.
          outcomes: ["success"],
        };
      },
    },
    {
      endpoint: "POST /auth/logout",
      async prepare() {
        const testUser = await createUser(context);
        return {
          method: "POST",
          path: "/auth/logout",
          options: { token: testUser.token },
          status: 200,
          allowedOnRepeat: [200, 401],
          state: () => stateOfTokenRevocation(context, testUser.token),
          event: "user.signedOut",
        };
      },
    },
    {
      endpoint: "POST /auth/password",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const testUser = await createUser(context);
        return {
          method: "POST",
          path: "/auth/password",
          options: {
            token: testUser.token,
            body: { currentPassword: PASSWORD, newPassword: "another long passphrase" },
          },
          status: 200,
          allowedOnRepeat: [200, 401],
          state: () => stateOfTokenRevocation(context, testUser.token),
          event: "user.passwordChanged",
        };
      },
    },
    {
      endpoint: "POST /auth/login",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const { username } = await createUser(context);
        const from = { "X-Forwarded-For": `192.0.2.${nextNumber() % 250}`, "Sec-Fetch-Site": "same-origin" };
        return {
          method: "POST",
          path: "/auth/login",
          options: { body: { username, password: PASSWORD, session: true }, headers: from },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await listSessions(context, username)).length > 0 ? "done" : "undone"),
          event: "user.signedIn",
          // A sign-in is recorded once, when it has succeeded.
          outcomes: ["success"],
        };
      },
    },
  ];
}

/** Returns the entries for the second factor: enrollment of an authenticator app, and the reset by an administrator. */
export function secondFactorEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { service } = context;
  return [
    {
      endpoint: "POST /auth/me/second-factor/totp",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const testUser = await createUser(context);
        return {
          method: "POST",
          path: "/auth/me/second-factor/totp",
          options: { token: testUser.token, body: { currentPassword: PASSWORD } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await readSecondFactor(context, testUser.username))?.pendingTotp ? "done" : "undone"),
          event: "user.secondFactorStarted",
        };
      },
    },
    {
      endpoint: "POST /auth/me/second-factor/totp/confirm",
      async prepare() {
        const { username, token } = await createUser(context);
        const code = codeOf(await startTotp(context, token));
        return {
          method: "POST",
          path: "/auth/me/second-factor/totp/confirm",
          options: { token, body: { code } },
          status: 200,
          allowedOnRepeat: [200, 409],
          state: async () => ((await readSecondFactor(context, username))?.totp ? "done" : "undone"),
          event: "user.secondFactorAdded",
        };
      },
    },
    {
      endpoint: "DELETE /auth/users/{user_id}/second-factor",
      async prepare() {
        const { username, token } = await createUser(context);
        const body = { code: codeOf(await startTotp(context, token)) };
        requireSuccess(await service.call("POST", "/auth/me/second-factor/totp/confirm", { token, body }));
        return {
          method: "DELETE",
          path: `/auth/users/${username}/second-factor`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: async () => ((await readSecondFactor(context, username)) ? "undone" : "done"),
          event: "user.secondFactorReset",
        };
      },
    },
  ];
}

const readSecondFactor = async ({ services }: EndpointContext, username: string) =>
  (await services().tables.get(User, USERS_PARTITION, username))?.secondFactor;

/** Starts adding an authenticator app. Returns its secret. */
async function startTotp({ service }: EndpointContext, userToken: string): Promise<string> {
  const options = { token: userToken, body: { currentPassword: PASSWORD } };
  const answer = await service.call("POST", "/auth/me/second-factor/totp", options);
  requireSuccess(answer);
  return answer.body.secret;
}

const codeOf = (secret: string) => new TOTP({ secret: Secret.fromBase32(secret) }).generate();

/** Returns the entries for browser sessions and API tokens. */
export function sessionAndTokenEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { service, call, nextNumber } = context;
  return [
    {
      endpoint: "DELETE /auth/sessions/{session_id}",
      async prepare() {
        const testUser = await createUser(context);
        const body = { username: testUser.username, password: PASSWORD, session: true };
        const from = { "X-Forwarded-For": `192.0.2.${nextNumber() % 250}`, "Sec-Fetch-Site": "same-origin" };
        requireSuccess(await service.call("POST", "/auth/login", { body, headers: from }));
        const [session] = await listSessions(context, testUser.username);
        return {
          method: "DELETE",
          path: `/auth/sessions/${session!.id}`,
          options: { token: testUser.token },
          status: 200,
          allowedOnRepeat: [200, 404],
          state: async () => ((await listSessions(context, testUser.username)).length === 0 ? "done" : "undone"),
          event: "session.ended",
        };
      },
    },
    {
      endpoint: "POST /auth/tokens",
      async prepare() {
        const testUser = await createUser(context);
        return {
          method: "POST",
          path: "/auth/tokens",
          options: { token: testUser.token, body: { name: "nightly" } },
          status: 201,
          // 409: the token of the first request exists under this name, although its value was never returned.
          allowedOnRepeat: [201, 409],
          state: async () =>
            (await call("GET", `/auth/tokens?user=${testUser.username}`)).total === 1 ? "done" : "undone",
          event: "apiToken.created",
        };
      },
    },
    {
      endpoint: "DELETE /auth/tokens/{token_id}",
      async prepare() {
        const testUser = await createUser(context);
        const created = requireSuccess(
          await service.call("POST", "/auth/tokens", { token: testUser.token, body: { name: "nightly" } }),
        ).body;
        return {
          method: "DELETE",
          path: `/auth/tokens/${created.id}`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: () => stateOfTokenRevocation(context, created.token),
          event: "apiToken.ended",
        };
      },
    },
  ];
}
