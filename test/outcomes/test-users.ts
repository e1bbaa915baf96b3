import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { HOUR_MS } from "../../shared/platform/time.ts";
import { createUsers, makeToken } from "../support/users.ts";
import type { EndpointContext } from "./endpoint-context.ts";

/** The password of all users that `createUser` creates. */
export const PASSWORD = "a long enough passphrase";

/** Creates a user by copying a template user under a new name, because hashing another password takes time. */
export async function createUser({
  service,
  services,
  nextNumber,
}: EndpointContext): Promise<{ username: string; token: string }> {
  const { tables } = services();
  const read = () => tables.get(User, USERS_PARTITION, "template");
  if (!(await read())) await createUsers(service, [{ username: "template", password: PASSWORD, role: "user" }]);
  const username = `user-${nextNumber()}`;
  // The token is issued half an hour ago, so that a revocation covers it although the service's clock may be behind this one.
  const tokensValidFrom = new Date(Date.now() - 2 * HOUR_MS).toISOString();
  await tables.insert(User, USERS_PARTITION, username, {
    ...withoutKeys((await read())!),
    username,
    tokensValidFrom,
  });
  const iat = (Date.now() - HOUR_MS / 2) / 1000;
  return { username, token: await makeToken(service, username, { claims: { iat, exp: iat + HOUR_MS / 1000 } }) };
}

/** Reads the state of revoking a token: `done` if the token is rejected. */
export const stateOfTokenRevocation = async ({ service }: EndpointContext, token: string) =>
  (await service.call("GET", "/auth/me", { token })).status === 200 ? ("undone" as const) : ("done" as const);

export const listSessions = async ({ call }: EndpointContext, username: string): Promise<{ id: string }[]> =>
  (await call("GET", `/auth/sessions?user=${username}`)).items;
