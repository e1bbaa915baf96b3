/**
 * `npm run roles-page`: writes docs/roles-matrix.md, which lists who can call each endpoint, from the endpoints' declarations.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { commandLine } from "./command-line.ts";
import { code, table } from "./markdown.ts";

const HELP = `npm run roles-page

Writes docs/roles-matrix.md: who can call each endpoint, from the declarations in functions/.`;

const FILE = path.resolve(import.meta.dirname, "../../docs/roles-matrix.md");

const INTRODUCTION = `# Role matrix

Generated from the declarations in \`functions/\` by \`npm run roles-page\`. Don't edit this page. A test fails if the page differs
from the declarations, and another test calls every endpoint as every kind of caller. [Roles](roles.md) explains the roles.

| column | \`yes\` means |
| --- | --- |
| nobody | A request without a credential can call the endpoint. |
| user, auditor, operator, admin | A caller with this role can call the endpoint. |
| programs | API tokens and Entra access tokens can call the endpoint. |
| sign-in tokens | Tokens of POST /auth/login can call the endpoint. |
| sessions | Browser sessions can call the endpoint. |
| password due | A user who must choose a new password can call the endpoint. |
| without license | The endpoint answers without a PRO license. |

Some PRO endpoints have \`yes\` under "without license" because they still return data that was created under a license. If there is no
such data, they return 403 \`licenseRequired\`.

\`GET /health\` needs a credential only with \`deep=true\`.

## Endpoints

`;

/** Returns what docs/roles-matrix.md must contain. */
export async function rolesPage(): Promise<string> {
  // Imported here, so that `--help` does not load every area of the service.
  const { declarations } = await import("../../functions/functions.ts");
  const { mayCall, ROLES } = await import("../../shared/platform/http/endpoint.ts");
  const { endpoints } = await declarations();
  const yesOrDash = (value: boolean) => (value ? "yes" : "–");
  const rows = endpoints.map(({ method, route, access, tier, interactive, credential, beforePasswordChange }) => {
    const isOpen = access === "open";
    return [
      code(`${method} /${route}`),
      yesOrDash(isOpen),
      ...ROLES.map((role) => yesOrDash(isOpen || mayCall(role, access))),
      yesOrDash(!interactive && credential !== "session"),
      yesOrDash(credential === undefined),
      yesOrDash(credential !== "programToken"),
      yesOrDash(isOpen || beforePasswordChange === true),
      yesOrDash(tier === "core"),
    ];
  });
  const columns = [
    "endpoint",
    "nobody",
    ...ROLES,
    "programs",
    "sign-in tokens",
    "sessions",
    "password due",
    "without license",
  ];
  return INTRODUCTION + table(columns, rows);
}

if (import.meta.main) {
  commandLine(HELP, {});
  const text = await rolesPage();
  const isCurrent = existsSync(FILE) && readFileSync(FILE, "utf8") === text;
  writeFileSync(FILE, text);
  console.log(isCurrent ? "docs/roles-matrix.md is up to date." : "docs/roles-matrix.md was written.");
}
