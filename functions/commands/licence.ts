/** Makes what licences are signed with, and licences. See HELP. */
import { generateKeyPairSync } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { CompactSign, importJWK } from "jose";
import * as z from "zod";
import { commandLine, usedWrong } from "../../infra/build/command-line.ts";
import { DAY_SECONDS } from "../../shared/platform/time.ts";
import { validationMessage } from "../../shared/platform/validation-message.ts";

const HELP = `npm run --silent licence -- keys --out FILE [--kid NAME]
npm run --silent licence -- issue --key FILE --tier core|pro --customer NAME --days N [--tenant GUID]

keys    writes a private key to a new file and prints the public half, as it goes into shared/licensing/vendor-keys.ts or
        into the build argument for development
issue   prints a licence, which goes into LICENSE_KEY

  --out FILE        where the private key goes; never over a file that is there
  --kid NAME        the key's name (key-, and the date)
  --key FILE        the private key to sign with
  --tier TIER       core or pro
  --customer NAME   who it is for
  --days N          how long it holds, 1 to 3650
  --tenant GUID     the only Entra tenant it holds in`;

/** A private key file: a JSON Web Key (RFC 8037) with its name. */
const PrivateKey = z.object({
  kty: z.literal("OKP"),
  crv: z.literal("Ed25519"),
  kid: z.string().min(1),
  x: z.string(),
  d: z.string(),
});

const NewLicense = z.object({
  key: z.string("names the private key file").min(1),
  tier: z.enum(["core", "pro"], "is core or pro"),
  customer: z.string("says who it is for").min(1).max(200),
  days: z.coerce.number("is 1 to 3650").int().min(1).max(3650),
  tenant: z.guid("is a GUID").optional(),
});

async function makeKeys(out: string, kid: string): Promise<void> {
  const jwk = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" });
  const key = PrivateKey.parse({ ...jwk, kid });
  // Never over a file that is there: it may hold the key of licences in use.
  await writeFile(out, `${JSON.stringify(key, null, 2)}\n`, { mode: 0o600, flag: "wx" });
  console.error(`The private key is in ${out}: keep it secret and out of the repository. Its public half:`);
  console.log(JSON.stringify({ kid: key.kid, x: key.x }));
}

/** What is wrong with a key is not said by what reads it: that would show a part of it. */
async function readKey(file: string): Promise<{ kid: string; key: Awaited<ReturnType<typeof importJWK>> }> {
  const text = await readFile(file, "utf8");
  try {
    const { kid, ...jwk } = PrivateKey.parse(JSON.parse(text));
    return { kid, key: await importJWK(jwk, "EdDSA") };
  } catch {
    return usedWrong(`${file} is not a private key as \`keys\` writes it`);
  }
}

async function issue(wanted: z.infer<typeof NewLicense>): Promise<void> {
  const { kid, key } = await readKey(wanted.key);
  const iat = Math.floor(Date.now() / 1000);
  const claims = {
    tier: wanted.tier,
    customer: wanted.customer,
    iat,
    exp: iat + wanted.days * DAY_SECONDS,
    ...(wanted.tenant && { tenantId: wanted.tenant }),
  };
  const signer = new CompactSign(new TextEncoder().encode(JSON.stringify(claims)));
  signer.setProtectedHeader({ alg: "EdDSA", kid });
  console.log(await signer.sign(key));
}

async function run(): Promise<void> {
  const option = { type: "string" } as const;
  const { positionals, values } = commandLine(HELP, {
    allowPositionals: true,
    options: {
      out: option,
      kid: option,
      key: option,
      tier: option,
      customer: option,
      days: option,
      tenant: option,
    },
  });
  const [command, ...more] = positionals;
  if (command === "keys" && more.length === 0) {
    const out = values.out ?? usedWrong("--out names the file of the private key");
    return await makeKeys(out, values.kid ?? `key-${new Date().toISOString().slice(0, 10)}`);
  }
  if (command !== "issue" || more.length > 0) usedWrong("Say keys or issue");
  const wanted = NewLicense.safeParse(values, { error: validationMessage });
  if (!wanted.success) {
    usedWrong(wanted.error.issues.map((problem) => `--${problem.path.join(".")} ${problem.message}`).join("; "));
  }
  await issue(wanted.data);
}

try {
  await run();
} catch (error) {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (!(error instanceof Error && ["EEXIST", "ENOENT"].includes(code))) throw error;
  console.error(error.message);
  process.exitCode = 1;
}
