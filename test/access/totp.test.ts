import { randomBytes } from "node:crypto";
import { Secret, TOTP } from "otpauth";
import { describe, expect, test } from "vitest";
import { createTotpSecrets } from "../../shared/access/totp.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import type { RowKeys } from "../../shared/platform/storage/signing.ts";
import { ADMIN, authenticateToken, CALLER, useDeployments } from "./instances.ts";

// Tests of authenticator apps (time-based one-time passwords): the stored secrets, their codes, and a missing key vault.

/** Keys with these versions, of which the last is the newest. */
function keysOf(...versions: [string, Uint8Array][]): RowKeys {
  const [name, key] = versions.at(-1)!;
  return { current: async () => ({ name, key }), named: async (wanted) => new Map(versions).get(wanted) };
}
const first: [string, Uint8Array] = ["a".repeat(32), randomBytes(32)];
const second: [string, Uint8Array] = ["b".repeat(32), randomBytes(32)];
const USER = { uid: "uid-1", username: "maria" };

describe("TOTP secrets", () => {
  // https://www.rfc-editor.org/rfc/rfc6238#appendix-B, the last six of eight digits
  test.each([
    [59, "287082"],
    [1_111_111_109, "081804"],
    [1_111_111_111, "050471"],
    [1_234_567_890, "005924"],
    [2_000_000_000, "279037"],
    [20_000_000_000, "353130"],
  ])("have the code of RFC 6238 at %d s", async (seconds, code) => {
    // The secret of the RFC's examples has 20 bytes. Other lengths are those of nonces.
    const randomness = {
      ...systemRandomness(),
      bytes: (length: number) => (length === 20 ? Buffer.from("12345678901234567890") : randomBytes(length)),
    };
    const secrets = createTotpSecrets({ keys: keysOf(first), randomness });
    const { encrypted } = await secrets.create(USER);
    const stepAt = (offset: number) => secrets.stepOf(encrypted, USER.uid, code, new Date((seconds + offset) * 1000));
    const step = Math.floor(seconds / 30);
    expect([await stepAt(0), await stepAt(30), await stepAt(-30)]).toEqual([step, step, step]);
    expect([await stepAt(60), await stepAt(-60)]).toEqual([undefined, undefined]);
  });

  test("can be decrypted with an earlier version of the key, but not for another user or after a change", async () => {
    const randomness = systemRandomness();
    const { encrypted, secret } = await createTotpSecrets({ keys: keysOf(first), randomness }).create(USER);
    const secrets = createTotpSecrets({ keys: keysOf(first, second), randomness });
    const now = new Date();
    const code = new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: now.getTime() });
    expect(await secrets.stepOf(encrypted, USER.uid, code, now)).toBe(Math.floor(now.getTime() / 30_000));
    await expect(secrets.stepOf(encrypted, "uid-2", code, now)).rejects.toThrow("can't be decrypted");
    const changed = encrypted.slice(0, -4) + (encrypted.endsWith("AAAA") ? "BBBB" : "AAAA");
    await expect(secrets.stepOf(changed, USER.uid, code, now)).rejects.toThrow("can't be decrypted");
    const withoutFirstKey = createTotpSecrets({ keys: keysOf(second), randomness });
    await expect(withoutFirstKey.stepOf(encrypted, USER.uid, code, now)).rejects.toThrow("can't be decrypted");
  });
});

describe("a deployment", () => {
  const nextDeployment = useDeployments(4);
  const proof = { currentPassword: ADMIN.password };

  test("without a key vault and an address says what is missing, and requires no second factor", async () => {
    const { access } = nextDeployment().start({ requireSecondFactor: "everyone" });
    const { access_token: token } = await access.signIn(ADMIN, CALLER);
    const authenticated = await authenticateToken({ access } as never, token);
    if (authenticated.kind !== "valid") throw new Error("The sign-in is not valid.");
    const { actor } = authenticated;
    expect(actor.mustEnrollSecondFactor).toBe(false);
    expect(await access.secondFactor.view(actor)).toMatchObject({ totpAvailable: false, passkeysAvailable: false });
    await expect(access.secondFactor.startTotp(actor, proof, CALLER)).rejects.toThrow("SERVICE_KEY_VAULT_URL");
    await expect(access.secondFactor.startPasskey(actor, proof, CALLER)).rejects.toThrow("PUBLIC_BASE_URL");
  });

  test("asks to start again if the key of a secret that waits for its first code is gone", async () => {
    const deployment = nextDeployment();
    const instance = deployment.start({ secondFactorKeys: keysOf(first) });
    const { access_token: token } = await instance.access.signIn(ADMIN, CALLER);
    const authenticated = await authenticateToken(instance, token);
    if (authenticated.kind !== "valid") throw new Error("The sign-in is not valid.");
    await instance.access.secondFactor.startTotp(authenticated.actor, proof, CALLER);
    const { access } = deployment.start({ secondFactorKeys: keysOf(second) });
    await expect(access.secondFactor.confirmTotp(authenticated.actor, "123456", CALLER)).rejects.toMatchObject({
      code: "conflict",
    });
  });

  test("that lost its key vault asks for a recovery code instead of a code of the app", async () => {
    const deployment = nextDeployment();
    const instance = deployment.start({ secondFactorKeys: keysOf(first) });
    const { access_token: token } = await instance.access.signIn(ADMIN, CALLER);
    const authenticated = await authenticateToken(instance, token);
    if (authenticated.kind !== "valid") throw new Error("The sign-in is not valid.");
    const { secret } = await instance.access.secondFactor.startTotp(authenticated.actor, proof, CALLER);
    const codeAt = (ms: number) => new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: ms });
    const now = deployment.clock.now().getTime();
    const { recoveryCodes } = await instance.access.secondFactor.confirmTotp(authenticated.actor, codeAt(now), CALLER);
    // An instance without a key vault.
    const { access } = deployment.start();
    await expect(access.signIn(ADMIN, CALLER)).rejects.toMatchObject({
      code: "secondFactorRequired",
      members: { methods: ["recoveryCode"] },
    });
    const totp = codeAt(now + 30_000);
    await expect(access.signIn({ ...ADMIN, totp }, CALLER)).rejects.toMatchObject({ code: "conflict" });
    const withCode = { ...ADMIN, recoveryCode: recoveryCodes![0] };
    expect(await access.signIn(withCode, CALLER)).toMatchObject({ token_type: "bearer" });
  });

  test("removes the second factor of the bootstrap administrator with a new BOOTSTRAP_ADMIN_PASSWORD", async () => {
    const deployment = nextDeployment();
    const secondFactorKeys = keysOf(first);
    const instance = deployment.start({ secondFactorKeys });
    const { access } = instance;
    const { access_token: token } = await access.signIn(ADMIN, CALLER);
    const authenticated = await authenticateToken(instance, token);
    if (authenticated.kind !== "valid") throw new Error("The sign-in is not valid.");
    const { actor } = authenticated;
    const { secret } = await access.secondFactor.startTotp(actor, proof, CALLER);
    const timestamp = deployment.clock.now().getTime();
    const code = new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp });
    await access.secondFactor.confirmTotp(actor, code, CALLER);
    await expect(access.signIn(ADMIN, CALLER)).rejects.toMatchObject({ code: "secondFactorRequired" });
    const config = { BOOTSTRAP_ADMIN_PASSWORD: "another correct horse" };
    const restarted = deployment.start({ secondFactorKeys, config });
    const password = config.BOOTSTRAP_ADMIN_PASSWORD;
    expect(await restarted.access.signIn({ ...ADMIN, password }, CALLER)).toMatchObject({ token_type: "bearer" });
  });
});
