import { beforeEach, describe, expect, test } from "vitest";
import { Problem } from "../../shared/platform/http/problem.ts";
import {
  ADMIN,
  authenticateToken,
  CALLER,
  callerAt,
  type Deployment,
  deriveQuickly,
  type Instance,
  MINUTES,
  passwords,
  SECONDS,
  useDeployments,
} from "./instances.ts";

// Tests of signing in with a password: the token, the limits on failed attempts, and the audit log.

const nextDeployment = useDeployments();
let deployment: Deployment;
let instance: Instance;

beforeEach(() => {
  deployment = nextDeployment();
  instance = deployment.start();
});

const WRONG_PASSWORD = { username: ADMIN.username, password: "wrong password" };
const UNKNOWN_USER = { username: "nobody", password: "wrong password" };

/** Returns the problem with which a call is rejected: code, message, and Retry-After in seconds. */
async function rejectionOf(call: Promise<unknown>): Promise<{ code: string; detail: string; retryAfter?: number }> {
  try {
    await call;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const { "Retry-After": seconds } = error.headers;
    return { code: error.code, detail: error.message, ...(seconds && { retryAfter: Number(seconds) }) };
  }
  throw new Error("The call was not rejected.");
}
const rejectionCodeOf = async (call: Promise<unknown>) => (await rejectionOf(call)).code;

const failToSignIn = async (credentials: { username: string; password: string }, times: number, caller = CALLER) => {
  for (let time = 0; time < times; time++) await rejectionCodeOf(instance.access.signIn(credentials, caller));
};

describe("signing in", () => {
  test("returns a token, even if the username is typed in another case", async () => {
    const signInResult = await instance.access.signIn({ ...ADMIN, username: "ADMIN" }, CALLER);
    expect(Object.keys(signInResult).sort()).toEqual(["access_token", "expires_in", "token_type"]);
    expect(signInResult).toMatchObject({ token_type: "bearer", expires_in: 3600 });
    const authenticated = await authenticateToken(instance, signInResult.access_token);
    expect(authenticated).toMatchObject({ kind: "valid", actor: { username: "Admin", role: "admin" } });
    expect(await deployment.auditEntries("user.signedIn")).toMatchObject([
      { actor: "Admin", address: "192.0.2.1", outcome: "success", target: { type: "user", id: "admin" } },
    ]);
  });

  test("is rejected with the same response and the same number of hashes for a wrong password and an unknown user", async () => {
    await instance.access.signIn(ADMIN, CALLER);
    const derivationsBefore = instance.derivationCount();
    const wrongPasswordRejection = await rejectionOf(instance.access.signIn(WRONG_PASSWORD, CALLER));
    expect(instance.derivationCount() - derivationsBefore).toBe(1);
    // `|directory` is the key of an internal row of the users table.
    for (const username of ["nobody", "", "no/such#key", "|directory", "\ud800".repeat(256)]) {
      expect(await rejectionOf(instance.access.signIn({ username, password: "x" }, CALLER))).toEqual(
        wrongPasswordRejection,
      );
    }
    // One for the wrong password and one for each of the five unknown usernames.
    expect(instance.derivationCount() - derivationsBefore).toBe(6);
    expect(wrongPasswordRejection.code).toBe("invalidCredentials");
  });

  test("stores no password, token or unknown username in a row or a log line", async () => {
    const unknownUsername = "My-Secret-Typed-As-A-Name";
    const { access_token } = await instance.access.signIn(ADMIN, CALLER);
    await rejectionCodeOf(
      instance.access.signIn({ username: unknownUsername, password: "Planted-Wrong-Password" }, CALLER),
    );
    await instance.access.users.create({ username: "maria", password: "Planted-User-Password", role: "user" }, CALLER);
    const maria = await instance.access.signIn({ username: "maria", password: "Planted-User-Password" }, CALLER);
    const authenticated = await authenticateToken(instance, maria.access_token);
    if (authenticated.kind !== "valid") throw new Error("The token is not valid.");
    await instance.access.changePassword(
      authenticated.actor,
      passwords("Planted-User-Password", "Planted-Next-Password"),
      CALLER,
    );
    const rowsAndLogLines = ((await deployment.allRows()) + deployment.logLines.join("\n")).toLowerCase();
    expect(rowsAndLogLines).toContain("maria");
    for (const secret of [
      unknownUsername,
      ADMIN.password,
      "Planted-Wrong-Password",
      "Planted-User-Password",
      "Planted-Next-Password",
      access_token,
      maria.access_token,
    ]) {
      expect(rowsAndLogLines).not.toContain(secret.toLowerCase());
    }
    expect(await deployment.auditEntries("user.signInFailed")).toMatchObject([
      { actor: "anonymous", target: { type: "user", id: expect.stringMatching(/^unknown:[0-9a-f]{16}$/) } },
    ]);
  });

  test.each([
    ["an existing", WRONG_PASSWORD],
    ["an unknown", UNKNOWN_USER],
  ])("of %s user is blocked for 15 minutes after five failures from one address", async (_description, credentials) => {
    for (let time = 0; time < 5; time++) {
      expect(await rejectionCodeOf(instance.access.signIn(credentials, CALLER))).toBe("invalidCredentials");
    }
    const derivationsBefore = instance.derivationCount();
    const rejection = await rejectionOf(instance.access.signIn(credentials, CALLER));
    expect(rejection).toMatchObject({ code: "tooManyAttempts", retryAfter: 15 * 60 });
    expect(instance.derivationCount()).toBe(derivationsBefore);
    expect(await rejectionCodeOf(deployment.start().access.signIn(credentials, CALLER))).toBe("tooManyAttempts");
    expect(await rejectionCodeOf(instance.access.signIn(credentials, callerAt("198.51.100.7")))).toBe(
      "invalidCredentials",
    );
    deployment.clock.pass(15 * MINUTES);
    expect(await rejectionCodeOf(instance.access.signIn(credentials, CALLER))).toBe("invalidCredentials");
  });

  test("is rejected with the right password while blocked, but only from the blocked address", async () => {
    const { access_token } = await instance.access.signIn(ADMIN, CALLER);
    await failToSignIn(WRONG_PASSWORD, 5);
    expect(await rejectionCodeOf(instance.access.signIn(ADMIN, CALLER))).toBe("tooManyAttempts");
    expect(await authenticateToken(instance, access_token)).toMatchObject({ kind: "valid" });
    await instance.access.signIn(ADMIN, callerAt("198.51.100.7"));
    const entries = await deployment.auditEntries("user.signInRefused");
    expect(entries).toMatchObject([{ outcome: "refused", details: { reason: "tooManyAttempts" } }]);
  });

  test("resets the address's failures when it succeeds", async () => {
    await failToSignIn(WRONG_PASSWORD, 4);
    await instance.access.signIn(ADMIN, CALLER);
    await failToSignIn(WRONG_PASSWORD, 4);
    await instance.access.signIn(ADMIN, CALLER);
  });

  test("20 times at once on two instances allows only five attempts", async () => {
    const otherInstance = deployment.start();
    await instance.access.signIn(ADMIN, CALLER);
    const codes = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        rejectionCodeOf((index % 2 ? instance : otherInstance).access.signIn(WRONG_PASSWORD, CALLER)),
      ),
    );
    expect(codes.filter((code) => code === "invalidCredentials")).toHaveLength(5);
    expect(codes.filter((code) => code === "tooManyAttempts")).toHaveLength(15);
  });

  test("with the right password 10 times at once counts no failure", async () => {
    await Promise.all(Array.from({ length: 10 }, () => instance.access.signIn(ADMIN, CALLER)));
    await failToSignIn(WRONG_PASSWORD, 4);
    await instance.access.signIn(ADMIN, CALLER);
  });

  test("with wrong passwords from many addresses delays the username, by up to 15 minutes", async () => {
    for (let address = 0; address < 11; address++) {
      expect(await rejectionCodeOf(instance.access.signIn(WRONG_PASSWORD, callerAt(`203.0.113.${address}`)))).toBe(
        "invalidCredentials",
      );
    }
    for (const seconds of [2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]) {
      // Mostly another address each time, because five failures block an address.
      const caller = callerAt(`198.51.100.${seconds % 250}`);
      const rejection = await rejectionOf(instance.access.signIn(WRONG_PASSWORD, caller));
      expect(rejection).toMatchObject({ code: "tooManyAttempts", retryAfter: seconds });
      deployment.clock.pass(seconds * SECONDS);
      expect(await rejectionCodeOf(instance.access.signIn(WRONG_PASSWORD, caller))).toBe("invalidCredentials");
    }
    expect((await rejectionOf(instance.access.signIn(ADMIN, CALLER))).retryAfter).toBe(900);
  });

  test("is possible twice in a row while the username is attacked, because a success adds no delay", async () => {
    // After 11 failures the username is delayed by 2 seconds, after 12 by 4. Each attempt waits that long.
    for (let address = 0; address < 12; address++) {
      deployment.clock.pass(4 * SECONDS);
      await failToSignIn(WRONG_PASSWORD, 1, callerAt(`203.0.113.${address}`));
    }
    deployment.clock.pass(4 * SECONDS);
    await instance.access.signIn(ADMIN, CALLER);
    await instance.access.signIn(ADMIN, CALLER);
  });

  test("undoes only its own attempt when it succeeds, not failures that were counted meanwhile", async () => {
    await instance.access.signIn(ADMIN, CALLER);
    let failures: Promise<void> | undefined;
    const slowInstance = deployment.start({
      derive: async (password, salt, parameters) => {
        failures ??= (async () => {
          for (let address = 0; address < 10; address++)
            await failToSignIn(WRONG_PASSWORD, 1, callerAt(`203.0.113.${address}`));
        })();
        await failures;
        return await deriveQuickly(password, salt, parameters);
      },
    });
    // From an address where the user has signed in before, the username's failures would not count.
    const unknownAddress = (last: number) => callerAt(`198.51.100.${last}`);
    await slowInstance.access.signIn(ADMIN, unknownAddress(1));
    expect(await rejectionCodeOf(instance.access.signIn(WRONG_PASSWORD, unknownAddress(2)))).toBe("invalidCredentials");
    expect(await rejectionOf(instance.access.signIn(ADMIN, unknownAddress(3)))).toMatchObject({ retryAfter: 2 });
  });

  test("is possible again after an administrator's unlock", async () => {
    await failToSignIn(WRONG_PASSWORD, 5);
    await failToSignIn(WRONG_PASSWORD, 5, callerAt("198.51.100.7"));
    await failToSignIn(WRONG_PASSWORD, 5, callerAt("203.0.113.9"));
    expect(await rejectionCodeOf(instance.access.signIn(ADMIN, CALLER))).toBe("tooManyAttempts");
    await instance.access.users.unlock("admin", { ...CALLER, actor: "other" });
    await instance.access.signIn(ADMIN, CALLER);
    await instance.access.signIn(ADMIN, callerAt("198.51.100.7"));
    expect(await deployment.auditEntries("user.unlocked")).toMatchObject([
      { actor: "other", outcome: "success" },
      { outcome: "intent" },
    ]);
  });

  test("is rate-limited per username", async () => {
    const limitedInstance = deployment.start({ limits: { perMinute: 2, perHour: 0 } });
    await limitedInstance.access.signIn(ADMIN, CALLER);
    await limitedInstance.access.signIn(ADMIN, callerAt("198.51.100.7"));
    const rejection = await rejectionOf(limitedInstance.access.signIn(ADMIN, callerAt("203.0.113.9")));
    expect(rejection).toMatchObject({ code: "rateLimited", retryAfter: 60 });
    expect(await rejectionCodeOf(limitedInstance.access.signIn(UNKNOWN_USER, CALLER))).toBe("invalidCredentials");
  });

  test("is not counted as a failure if the password could not be verified", async () => {
    await instance.access.signIn(ADMIN, CALLER);
    const brokenInstance = deployment.start({
      derive: async () => {
        throw new Error("out of memory");
      },
    });
    for (let time = 0; time < 6; time++) {
      await expect(brokenInstance.access.signIn(ADMIN, CALLER)).rejects.toThrow("out of memory");
    }
    await instance.access.signIn(ADMIN, CALLER);
  });

  test("fails if it can't be recorded in the audit log", async () => {
    const instanceWithoutAudit = deployment.start({
      audit: {
        append: async () => {
          throw new Error("no audit");
        },
      },
    });
    await instance.access.signIn(ADMIN, CALLER);
    await expect(instanceWithoutAudit.access.signIn(ADMIN, CALLER)).rejects.toThrow("no audit");
  });

  test("leaves counts of failures that the clean-up deletes once they have expired", async () => {
    await failToSignIn(UNKNOWN_USER, 1);
    deployment.clock.pass(24 * 60 * MINUTES + SECONDS);
    await failToSignIn(WRONG_PASSWORD, 5);
    await instance.access.cleanUp();
    expect(await rejectionCodeOf(instance.access.signIn(ADMIN, CALLER))).toBe("tooManyAttempts");
    const remaining = (JSON.parse(await deployment.allRows()) as { expiresAt?: string }[]).filter(
      (row) => row.expiresAt !== undefined,
    );
    // The count of the username with the address, and the count of the username.
    expect(remaining).toHaveLength(2);
  });
});
