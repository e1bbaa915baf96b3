import { describe, expect, test } from "vitest";
import { refuseWeakPassword } from "../../shared/access/password-policy.ts";
import { createPasswords, type Derive } from "../../shared/access/passwords.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";

const randomness = systemRandomness();

/** Counts derivations, and their maximum concurrency. */
function counting() {
  const seen = { derived: 0, most: 0 };
  let now = 0;
  const derive: Derive = async (password) => {
    seen.derived += 1;
    now += 1;
    seen.most = Math.max(seen.most, now);
    await new Promise((resolve) => setImmediate(resolve));
    now -= 1;
    return Buffer.from(password.padEnd(32).slice(0, 32));
  };
  return { seen, passwords: createPasswords({ randomness, derive }) };
}

describe("passwords", () => {
  const real = createPasswords({ randomness });

  test("a hash contains scrypt's parameters and its own salt, and only its password matches", async () => {
    const [hash, again] = [await real.hash("correct horse battery"), await real.hash("correct horse battery")];
    expect(hash).toMatch(/^\$scrypt\$ln=14,r=8,p=5\$[\w+/]{22}\$[\w+/]{43}$/);
    expect(again).not.toBe(hash);
    expect(await real.verify("correct horse battery", hash)).toBe(true);
    expect(await real.verify("correct horse batterz", hash)).toBe(false);
    expect(await real.verify("correct horse battery", undefined)).toBe(false);
  });

  test("a password typed on two keyboards is the same password", async () => {
    const hash = await real.hash("Käsekuchen mit Sahne".normalize("NFC"));
    expect(await real.verify("Käsekuchen mit Sahne".normalize("NFD"), hash)).toBe(true);
  });

  test("an unknown user takes as long as a wrong password", async () => {
    const { seen, passwords } = counting();
    const hash = await passwords.hash("correct horse battery");
    const before = seen.derived;
    await passwords.verify("wrong", hash);
    expect(seen.derived - before).toBe(1);
    await passwords.verify("wrong", undefined);
    expect(seen.derived - before).toBe(2);
  });

  test("are derived one at a time, and rejected with Retry-After if the queue is full", async () => {
    const { seen, passwords } = counting();
    const results = await Promise.allSettled(Array.from({ length: 50 }, () => passwords.verify("wrong", undefined)));
    expect(seen.most).toBe(1);
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(33);
    const refused = results.flatMap((result) => (result.status === "rejected" ? [result.reason as Problem] : []));
    expect(refused).toHaveLength(17);
    for (const problem of refused) {
      expect(problem).toBeInstanceOf(Problem);
      expect([problem.status, problem.headers["Retry-After"]]).toEqual([429, "5"]);
    }
    expect(await passwords.verify("wrong", undefined)).toBe(false);
  });

  test("a failure does not stop the next derivation", async () => {
    let broken = true;
    const derive: Derive = async () => {
      if (broken) throw new Error("out of memory");
      return new Uint8Array(32);
    };
    const passwords = createPasswords({ randomness, derive });
    await expect(passwords.hash("correct horse battery")).rejects.toThrow("out of memory");
    broken = false;
    await expect(passwords.hash("correct horse battery")).resolves.toContain("$scrypt$");
  });
});

test.each([
  ["zanzibarquill", undefined],
  ["ada", "zanzibarquill@acme.example"],
])("a variation of one's name or mail address is a weak password: %s, %s", async (username, email) => {
  const refused = refuseWeakPassword("zanzibarquill1", { username, email }, "password");
  await expect(refused).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path: "body.password" }] });
  await refuseWeakPassword("zanzibarquill1", { username: "ada", email: "ada@acme.example" }, "password");
});

test.each(["credential4q!zk", "lifecycle4q!zk", "keyvault4q!zk", "service4q!zk"])(
  "a variation of a word of this service is a weak password: %s",
  async (password) => {
    const refused = refuseWeakPassword(password, { username: "ada" }, "newPassword");
    await expect(refused).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path: "body.newPassword" }] });
    await refuseWeakPassword(password.replace(/^[a-z]+/, "zanzibarquill"), { username: "ada" }, "newPassword");
  },
);
