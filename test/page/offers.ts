/** Who may do what, by the page that people read (docs/roles-matrix.md, which the API is held to), to hold the page to it. */
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { tableUnder } from "../support/markdown-table.ts";

const PAGE = "functions/web/src";
const ROLES = ["user", "auditor", "operator", "admin"] as const;
type Role = (typeof ROLES)[number];

export interface Offers {
  roleMay(role: Role, operation: string): boolean;
  needsLicence(operation: string): boolean;
  /** How an operation is called, with ids that nothing has. */
  callTo(operation: string): { method: string; path: string };
  /** The views with a place in the navigation, and what each needs. */
  views: { path: string; title: string; needs: string }[];
  /** All of them, those that others lead to as well: their paths have parts such as `:assetId`. */
  routes: { path: string; needs: string }[];
  /** The calls of the page's sources that nobody asked about before, in a line each. */
  unasked(): string[];
}

/** @param document - The API's description, for the operations' names. */
export function createOffers(document: { paths: Record<string, Record<string, { operationId?: string }>> }): Offers {
  const rows = new Map(
    tableUnder("docs/roles-matrix.md", "## Endpoints").map((row) => [row.endpoint!.replaceAll("`", ""), row]),
  );
  const described = Object.entries(document.paths).flatMap(([route, methods]) =>
    Object.entries(methods).map(
      ([method, { operationId }]) => [operationId ?? "", `${method.toUpperCase()} ${route}`] as const,
    ),
  );
  const routeOf = new Map<string, string>(described);
  const nameOf = new Map<string, string>(described.map(([name, route]) => [route, name]));
  const routes = [...readFileSync(`${PAGE}/views/views.ts`, "utf8").matchAll(VIEW)].map(([, path, title, needs]) => ({
    path: path!,
    title,
    needs: needs!,
  }));
  const rowOf = (operation: string) => {
    const row = rows.get(routeOf.get(operation) ?? "");
    if (!row) throw new Error(`docs/roles-matrix.md has no operation ${operation}.`);
    return row;
  };
  const roleMay = (role: Role, operation: string) => rowOf(operation)[role] === "yes";
  const needsLicence = (operation: string) => rowOf(operation)["without license"] !== "yes";
  const isGet = (operation: string) => routeOf.get(operation)!.startsWith("GET ");

  /** Whoever may `guard` may also `operation`. */
  function implies(guard: string, operation: string): boolean {
    const isLicensed = !needsLicence(operation) || needsLicence(guard);
    return isLicensed && ROLES.every((role) => !roleMay(role, guard) || roleMay(role, operation));
  }

  function unasked(): string[] {
    const found: string[] = [];
    for (const file of globSync(`${PAGE}/**/*.{ts,tsx}`)) {
      const name = path.relative(PAGE, file).replaceAll(path.sep, "/");
      if (ANYBODYS.some((prefix) => name.startsWith(prefix))) continue;
      const text = readFileSync(file, "utf8");
      const folder = globSync(`${path.dirname(file)}/*.tsx`).map((one) => readFileSync(one, "utf8"));
      if (/\bcallOf\(/.test(text)) found.push(`${name}: callOf, which only Operate uses`);
      for (const call of callsIn(text)) {
        const operation = nameOf.get(call) ?? call;
        // A part of a view reads what another part of it has asked about.
        const asked = guardsIn(isGet(operation) ? folder.join("\n") : text);
        const isEverybodys = isGet(operation) && !needsLicence(operation) && roleMay("user", operation);
        if (!isEverybodys && !asked.some((guard) => implies(guard, operation))) found.push(`${name}: ${operation}`);
      }
    }
    return found;
  }

  return {
    roleMay,
    needsLicence,
    callTo(operation) {
      const [method, route] = routeOf.get(operation)!.split(" ");
      return { method: method!, path: route!.replaceAll(/\{\w+\}/g, "nothing") };
    },
    views: routes.flatMap(({ path, title, needs }) => (title === undefined ? [] : [{ path, title, needs }])),
    routes,
    unasked,
  };
}

const VIEW = /path: "([^"]+)",\s*(?:title: "([^"]+)",\s*)?needs: "(\w+)"/g;

/** Calls that are anybody's, or that only the part which asks first makes. */
const ANYBODYS = ["parts/operate.tsx", "api/", "shell/"];

const guardsIn = (text: string): string[] =>
  [...text.matchAll(/(?:\bmay\(|\boperation=|\boperation: )"(\w+)"/g)].map(([, operation]) => operation!);

/** By hooks or by the client, such as "POST /alerts/rules". */
const callsIn = (text: string): string[] =>
  [/\bapi\.use\w+\(\s*"(\w+)",\s*"([^"]+)"/g, /\bclient\.([A-Z]+)\(\s*"([^"]+)"/g].flatMap((call) =>
    [...text.matchAll(call)].map(([, method, route]) => `${method!.toUpperCase()} ${route}`),
  );
