/** Permissions by role from docs/roles-matrix.md, which the API tests verify, to compare them with what the page shows. */
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { tableUnder } from "../support/markdown-table.ts";

const PAGE = "functions/web/src";
const ROLES = ["user", "auditor", "operator", "admin"] as const;
type Role = (typeof ROLES)[number];

export interface Offers {
  roleAllows(role: Role, operation: string): boolean;
  needsLicence(operation: string): boolean;
  /** Returns the request of an operation, with ids that don't exist. */
  callTo(operation: string): { method: string; path: string };
  /** The views in the navigation, with the operation each needs. */
  views: { path: string; title: string; needs: string }[];
  /** All views, including those without a navigation entry. Their paths can have parameters such as `:assetId`. */
  routes: { path: string; needs: string }[];
  /** Returns the API calls in the page's source that have no permission check. */
  uncheckedCalls(): string[];
}

/** @param document - The OpenAPI document, for the names of the operations. */
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
  const roleAllows = (role: Role, operation: string) => rowOf(operation)[role] === "yes";
  const needsLicence = (operation: string) => rowOf(operation)["without license"] !== "yes";
  const isGet = (operation: string) => routeOf.get(operation)!.startsWith("GET ");

  /** Returns whether every role that can call `guard` can also call `operation`. */
  function implies(guard: string, operation: string): boolean {
    const isLicensed = !needsLicence(operation) || needsLicence(guard);
    return isLicensed && ROLES.every((role) => !roleAllows(role, guard) || roleAllows(role, operation));
  }

  function uncheckedCalls(): string[] {
    const found: string[] = [];
    for (const file of globSync(`${PAGE}/**/*.{ts,tsx}`)) {
      const name = path.relative(PAGE, file).replaceAll(path.sep, "/");
      if (UNRESTRICTED.some((prefix) => name.startsWith(prefix))) continue;
      const text = readFileSync(file, "utf8");
      const folder = globSync(`${path.dirname(file)}/*.tsx`).map((one) => readFileSync(one, "utf8"));
      if (/\bcallOf\(/.test(text)) found.push(`${name}: callOf, which only Operate uses`);
      for (const call of callsIn(text)) {
        const operation = nameOf.get(call) ?? call;
        // A component can read data that another component of the same view has checked.
        const guards = guardsIn(isGet(operation) ? folder.join("\n") : text);
        const isForEveryRole = isGet(operation) && !needsLicence(operation) && roleAllows("user", operation);
        if (!isForEveryRole && !guards.some((guard) => implies(guard, operation))) found.push(`${name}: ${operation}`);
      }
    }
    return found;
  }

  return {
    roleAllows,
    needsLicence,
    callTo(operation) {
      const [method, route] = routeOf.get(operation)!.split(" ");
      return { method: method!, path: route!.replaceAll(/\{\w+\}/g, "nothing") };
    },
    views: routes.flatMap(({ path, title, needs }) => (title === undefined ? [] : [{ path, title, needs }])),
    routes,
    uncheckedCalls,
  };
}

const VIEW = /path: "([^"]+)",\s*(?:title: "([^"]+)",\s*)?needs: "(\w+)"/g;

/** Sources whose calls are allowed for every role, or that check the permission themselves. */
const UNRESTRICTED = ["parts/operate.tsx", "api/", "shell/"];

const guardsIn = (text: string): string[] =>
  [...text.matchAll(/(?:\bmay\(|\boperation=|\boperation: )"(\w+)"/g)].map(([, operation]) => operation!);

/** Returns calls by hooks or by the client, such as "POST /alerts/rules". */
const callsIn = (text: string): string[] =>
  [/\bapi\.use\w+\(\s*"(\w+)",\s*"([^"]+)"/g, /\bclient\.([A-Z]+)\(\s*"([^"]+)"/g].flatMap((call) =>
    [...text.matchAll(call)].map(([, method, route]) => `${method!.toUpperCase()} ${route}`),
  );
