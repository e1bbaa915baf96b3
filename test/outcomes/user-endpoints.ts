import { createSignInFailures } from "../../shared/access/sign-in-failures.ts";
import { keyedHash } from "../../shared/access/tokens.ts";
import type { ChangingEndpoint } from "./changing-endpoint.ts";
import type { EndpointContext } from "./endpoint-context.ts";
import { createUser, PASSWORD } from "./test-users.ts";

/**
 * Returns the entries for users. outcomes.test.ts sends their requests during faults of storage, and once more if the outcome is
 * unknown (`allowedOnRepeat`). `state` reads whether the change happened. A request that hashes a password is slow, so only the two
 * faults that lose the response are tested with it.
 */
export function userEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { services, call, nextNumber, stateIfExists, stateIfRemoved } = context;
  return [
    {
      endpoint: "POST /auth/users",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const username = `made-${nextNumber()}`;
        return {
          method: "POST",
          path: "/auth/users",
          options: { body: { username, password: PASSWORD } },
          status: 201,
          allowedOnRepeat: [201, 409],
          state: stateIfExists(`/auth/users/${username}`),
          event: "user.created",
        };
      },
    },
    {
      endpoint: "PUT /auth/users/{user_id}",
      async prepare() {
        const testUser = await createUser(context);
        const sso = { issuer: "https://idp.example", subject: testUser.username };
        return {
          method: "PUT",
          path: `/auth/users/${testUser.username}`,
          options: { body: { role: "admin", sso } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => {
            const current = await call("GET", `/auth/users/${testUser.username}`);
            return current.role === "admin" && current.sso?.subject === testUser.username ? "done" : "undone";
          },
          event: "user.updated",
        };
      },
    },
    {
      endpoint: "DELETE /auth/users/{user_id}",
      async prepare() {
        const { username } = await createUser(context);
        const sso = { issuer: "https://idp.example", subject: username };
        await call("PUT", `/auth/users/${username}`, { sso });
        return {
          method: "DELETE",
          path: `/auth/users/${username}`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateIfRemoved(`/auth/users/${username}`),
          event: "user.deleted",
        };
      },
    },
    {
      endpoint: "POST /auth/users/{user_id}/unlock",
      async prepare() {
        const { username } = await createUser(context);
        const { config, tables, clock } = services();
        const hash = (text: string) => keyedHash(config.JWT_SIGNING_KEYS[0]!.key, "sign-in", text);
        const failures = createSignInFailures({ tables, clock, hash });
        // The fifth failure from an address blocks the username there.
        for (let failure = 0; failure < 5; failure++) {
          await failures.begin({ username, address: "198.51.100.1", isKnownAddress: false });
        }
        return {
          method: "POST",
          path: `/auth/users/${username}/unlock`,
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await call("GET", `/auth/users/${username}`)).lockedUntil === null ? "done" : "undone"),
          event: "user.unlocked",
        };
      },
    },
  ];
}

/** Returns the entries for the SSO configuration, and for identities whose sign-in is blocked. */
export function ssoEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { call, uniqueName } = context;
  return [
    {
      endpoint: "DELETE /auth/sso/refused/{identity_id}",
      async prepare() {
        const { username } = await createUser(context);
        await call("PUT", `/auth/users/${username}`, { sso: { issuer: "https://idp.example", subject: username } });
        await call("DELETE", `/auth/users/${username}`);
        const refused = async () =>
          (await call("GET", "/auth/sso/refused?limit=1000")).items.find(
            (testUser: { username: string }) => testUser.username === username,
          );
        return {
          method: "DELETE",
          path: `/auth/sso/refused/${(await refused()).id}`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: async () => ((await refused()) ? "undone" : "done"),
          event: "user.identityAllowed",
        };
      },
    },
    {
      endpoint: "PUT /auth/sso/config",
      async prepare() {
        const loginButtonText = uniqueName("sign in");
        const shown = async () => (await call("GET", "/auth/sso/config")).loginButtonText;
        return {
          method: "PUT",
          path: "/auth/sso/config",
          options: { body: { loginButtonText, oidcIssuer: "https://idp.example", oidcClientSecret: "of outcomes" } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await shown()) === loginButtonText ? "done" : "undone"),
          event: "sso.configured",
        };
      },
    },
    {
      endpoint: "DELETE /auth/sso/config",
      async prepare() {
        // Single sign-on was never on, so only the changed ETag shows that it was turned off.
        const { etag } = await call("PUT", "/auth/sso/config", { loginButtonText: uniqueName("sign in") });
        return {
          method: "DELETE",
          path: "/auth/sso/config",
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await call("GET", "/auth/sso/config")).etag === etag ? "undone" : "done"),
          event: "sso.disabled",
        };
      },
    },
  ];
}
