import { beforeEach, describe, expect, test } from "vitest";
import { Problem } from "../../shared/platform/http/problem.ts";
import {
  ADMIN,
  type Deployment,
  from,
  HERE,
  type Instance,
  MINUTES,
  passwords,
  quickly,
  SECONDS,
  useDeployments,
  whoIs,
} from "./instances.ts";

const nextDeployment = useDeployments();
let deployment: Deployment;
let instance: Instance;

beforeEach(() => {
  deployment = nextDeployment();
  instance = deployment.start();
});

const WRONG = { username: ADMIN.username, password: "wrong password" };
const UNKNOWN = { username: "nobody", password: "wrong password" };

/** The problem code of a rejected call, and its Retry-After in seconds. */
async function refusal(call: Promise<unknown>): Promise<{ code: string; detail: string; retryAfter?: number }> {
  try {
    await call;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const { "Retry-After": seconds } = error.headers;
    return { code: error.code, detail: error.message, ...(seconds && { retryAfter: Number(seconds) }) };
  }
  throw new Error("It was not refused.");
}
const code = async (call: Promise<unknown>) => (await refusal(call)).code;

const fail = async (credentials: { username: string; password: string }, times: number, caller = HERE) => {
  for (let time = 0; time < times; time++) await code(instance.access.signIn(credentials, caller));
};

describe("signing in", () => {
  test("returns a token for the user, whatever the case of the name", async () => {
    const answer = await instance.access.signIn({ ...ADMIN, username: "ADMIN" }, HERE);
    expect(Object.keys(answer).sort()).toEqual(["access_token", "expires_in", "token_type"]);
    expect(answer).toMatchObject({ token_type: "bearer", expires_in: 3600 });
    const who = await whoIs(instance, answer.access_token);
    expect(who).toMatchObject({ kind: "valid", actor: { username: "Admin", role: "admin" } });
    expect(await deployment.entries("user.signedIn")).toMatchObject([
      { actor: "Admin", address: "192.0.2.1", outcome: "success", target: { type: "user", id: "admin" } },
    ]);
  });

  test("is rejected in the same way, at the same cost, for a wrong password and an unknown user", async () => {
    await instance.access.signIn(ADMIN, HERE);
    const before = instance.derived();
    const wrong = await refusal(instance.access.signIn(WRONG, HERE));
    expect(instance.derived() - before).toBe(1);
    for (const username of ["nobody", "", "no/such#key", "|directory", "\ud800".repeat(256)]) {
      expect(await refusal(instance.access.signIn({ username, password: "x" }, HERE))).toEqual(wrong);
    }
    expect(instance.derived() - before).toBe(6);
    expect(wrong.code).toBe("invalidCredentials");
  });

  test("leaves no typed text, password or token in any row or log line", async () => {
    const typed = "My-Secret-Typed-As-A-Name";
    const { access_token } = await instance.access.signIn(ADMIN, HERE);
    await code(instance.access.signIn({ username: typed, password: "Planted-Wrong-Password" }, HERE));
    await instance.access.users.create({ username: "maria", password: "Planted-User-Password", role: "user" }, HERE);
    const maria = await instance.access.signIn({ username: "maria", password: "Planted-User-Password" }, HERE);
    const who = await whoIs(instance, maria.access_token);
    if (who.kind !== "valid") throw new Error("The token does not hold.");
    await instance.access.changePassword(who.actor, passwords("Planted-User-Password", "Planted-Next-Password"), HERE);
    const kept = ((await deployment.everything()) + deployment.logged.join("\n")).toLowerCase();
    expect(kept).toContain("maria");
    for (const secret of [
      typed,
      ADMIN.password,
      "Planted-Wrong-Password",
      "Planted-User-Password",
      "Planted-Next-Password",
      access_token,
      maria.access_token,
    ]) {
      expect(kept).not.toContain(secret.toLowerCase());
    }
    expect(await deployment.entries("user.signInFailed")).toMatchObject([
      { actor: "anonymous", target: { type: "user", id: expect.stringMatching(/^unknown:[0-9a-f]{16}$/) } },
    ]);
  });

  test.each([
    ["known", WRONG],
    ["unknown", UNKNOWN],
  ])("of a %s user is blocked for 15 minutes after five failures from one address", async (_what, credentials) => {
    for (let time = 0; time < 5; time++) {
      expect(await code(instance.access.signIn(credentials, HERE))).toBe("invalidCredentials");
    }
    const derived = instance.derived();
    const refused = await refusal(instance.access.signIn(credentials, HERE));
    expect(refused).toMatchObject({ code: "tooManyAttempts", retryAfter: 15 * 60 });
    expect(instance.derived()).toBe(derived);
    expect(await code(deployment.start().access.signIn(credentials, HERE))).toBe("tooManyAttempts");
    expect(await code(instance.access.signIn(credentials, from("198.51.100.7")))).toBe("invalidCredentials");
    deployment.clock.pass(15 * MINUTES);
    expect(await code(instance.access.signIn(credentials, HERE))).toBe("invalidCredentials");
  });

  test("while blocked rejects the right password, but no token and no other address", async () => {
    const { access_token } = await instance.access.signIn(ADMIN, HERE);
    await fail(WRONG, 5);
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("tooManyAttempts");
    expect(await whoIs(instance, access_token)).toMatchObject({ kind: "valid" });
    await instance.access.signIn(ADMIN, from("198.51.100.7"));
    const entries = await deployment.entries("user.signInRefused");
    expect(entries).toMatchObject([{ outcome: "refused", details: { reason: "tooManyAttempts" } }]);
  });

  test("with success resets an address", async () => {
    await fail(WRONG, 4);
    await instance.access.signIn(ADMIN, HERE);
    await fail(WRONG, 4);
    await instance.access.signIn(ADMIN, HERE);
  });

  test("many times at once on two instances gets five attempts, not more", async () => {
    const other = deployment.start();
    await instance.access.signIn(ADMIN, HERE);
    const codes = await Promise.all(
      Array.from({ length: 20 }, (_, index) => code((index % 2 ? instance : other).access.signIn(WRONG, HERE))),
    );
    expect(codes.filter((one) => one === "invalidCredentials")).toHaveLength(5);
    expect(codes.filter((one) => one === "tooManyAttempts")).toHaveLength(15);
  });

  test("correctly many times at once is never counted as a failure", async () => {
    await Promise.all(Array.from({ length: 10 }, () => instance.access.signIn(ADMIN, HERE)));
    await fail(WRONG, 4);
    await instance.access.signIn(ADMIN, HERE);
  });

  test("from many addresses is delayed by the username, up to 15 minutes", async () => {
    for (let address = 0; address < 11; address++) {
      expect(await code(instance.access.signIn(WRONG, from(`203.0.113.${address}`)))).toBe("invalidCredentials");
    }
    for (const seconds of [2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]) {
      const caller = from(`198.51.100.${seconds % 250}`);
      const refused = await refusal(instance.access.signIn(WRONG, caller));
      expect(refused).toMatchObject({ code: "tooManyAttempts", retryAfter: seconds });
      deployment.clock.pass(seconds * SECONDS);
      expect(await code(instance.access.signIn(WRONG, caller))).toBe("invalidCredentials");
    }
    expect((await refusal(instance.access.signIn(ADMIN, HERE))).retryAfter).toBe(900);
  });

  test("with success while a username is attacked does not delay it further", async () => {
    for (let address = 0; address < 12; address++) {
      deployment.clock.pass(4 * SECONDS);
      await fail(WRONG, 1, from(`203.0.113.${address}`));
    }
    deployment.clock.pass(4 * SECONDS);
    await instance.access.signIn(ADMIN, HERE);
    await instance.access.signIn(ADMIN, HERE);
  });

  test("with success undoes its own attempt only, whatever else was counted meanwhile", async () => {
    await instance.access.signIn(ADMIN, HERE);
    let failing: Promise<void> | undefined;
    const slow = deployment.start({
      derive: async (password, salt, parameters) => {
        failing ??= (async () => {
          for (let address = 0; address < 10; address++) await fail(WRONG, 1, from(`203.0.113.${address}`));
        })();
        await failing;
        return await quickly(password, salt, parameters);
      },
    });
    // From a known address the username's failures would not count.
    const unknownAddress = (last: number) => from(`198.51.100.${last}`);
    await slow.access.signIn(ADMIN, unknownAddress(1));
    expect(await code(instance.access.signIn(WRONG, unknownAddress(2)))).toBe("invalidCredentials");
    expect(await refusal(instance.access.signIn(ADMIN, unknownAddress(3)))).toMatchObject({ retryAfter: 2 });
  });

  test("is possible again after an administrator's unlock", async () => {
    await fail(WRONG, 5);
    await fail(WRONG, 5, from("198.51.100.7"));
    await fail(WRONG, 5, from("203.0.113.9"));
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("tooManyAttempts");
    await instance.access.users.unlock("admin", { ...HERE, actor: "other" });
    await instance.access.signIn(ADMIN, HERE);
    await instance.access.signIn(ADMIN, from("198.51.100.7"));
    expect(await deployment.entries("user.unlocked")).toMatchObject([
      { actor: "other", outcome: "success" },
      { outcome: "intent" },
    ]);
  });

  test("is rate-limited per username in a bucket of its own", async () => {
    const limited = deployment.start({ limits: { perMinute: 2, perHour: 0 } });
    await limited.access.signIn(ADMIN, HERE);
    await limited.access.signIn(ADMIN, from("198.51.100.7"));
    const refused = await refusal(limited.access.signIn(ADMIN, from("203.0.113.9")));
    expect(refused).toMatchObject({ code: "rateLimited", retryAfter: 60 });
    expect(await code(limited.access.signIn(UNKNOWN, HERE))).toBe("invalidCredentials");
  });

  test("whose password could not be verified is not a failure", async () => {
    await instance.access.signIn(ADMIN, HERE);
    const broken = deployment.start({
      derive: async () => {
        throw new Error("out of memory");
      },
    });
    for (let time = 0; time < 6; time++) {
      await expect(broken.access.signIn(ADMIN, HERE)).rejects.toThrow("out of memory");
    }
    await instance.access.signIn(ADMIN, HERE);
  });

  test("returns no token that is not in the audit log", async () => {
    const silent = deployment.start({
      audit: {
        append: async () => {
          throw new Error("no audit");
        },
      },
    });
    await instance.access.signIn(ADMIN, HERE);
    await expect(silent.access.signIn(ADMIN, HERE)).rejects.toThrow("no audit");
  });

  test("leaves no permanent rows: expired counts are removed, current counts stay", async () => {
    await fail(UNKNOWN, 1);
    deployment.clock.pass(24 * 60 * MINUTES + SECONDS);
    await fail(WRONG, 5);
    await instance.access.cleanUp();
    expect(await code(instance.access.signIn(ADMIN, HERE))).toBe("tooManyAttempts");
    const remaining = (JSON.parse(await deployment.everything()) as { expiresAt?: string }[]).filter(
      (row) => row.expiresAt !== undefined,
    );
    expect(remaining).toHaveLength(2);
  });
});
