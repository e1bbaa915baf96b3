import pMap from "p-map";
import { CloudFailure } from "../platform/azure/failure.ts";
import { toSingleLine } from "../platform/http/single-line.ts";
import type { DevopsTest, DevopsTestStep } from "./api.ts";
import type { DevopsClient, ListOptions } from "./client.ts";
import type { Project } from "./response-schemas.ts";

/** Maximum number of projects to test, those of `projectIds` first. */
const TRIED_PROJECTS = 20;

/** Concurrent projects. DevOps slows down clients with many requests. */
const AT_ONCE = 2;

/** Time limit in milliseconds for all steps: the response must leave within the platform's 230 seconds. */
const TEST_TIMEOUT_MS = 120_000;

/**
 * Tests everything that dependency discovery needs with the service's own identity, and returns what is missing. Changes
 * nothing.
 */
export async function testOrganization(
  client: DevopsClient,
  { orgUrl, projectIds, now }: { orgUrl: string; projectIds: readonly string[]; now: Date },
): Promise<DevopsTest> {
  const signal = AbortSignal.timeout(TEST_TIMEOUT_MS);
  const steps: DevopsTestStep[] = [];

  async function attempt(
    step: DevopsTestStep["step"],
    project: string | null,
    work: () => Promise<Partial<DevopsTestStep>>,
  ) {
    const nothing = { found: null, changeable: null, code: null, detail: null, remedy: null };
    try {
      steps.push({ step, project, ok: true, ...nothing, ...(await work()) });
      return true;
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      const { code, message, remedy } = error;
      steps.push({ step, project, ok: false, ...nothing, code, detail: message, remedy });
      return false;
    }
  }

  let identity: DevopsTest["identity"] = null;
  const visible: Project[] = [];
  const known = await attempt("signIn", null, async () => {
    const { id, name = null } = await client.user(signal);
    identity = { id, name: name && toSingleLine(name) };
    return {};
  });
  if (known) {
    await attempt("projects", null, async () => {
      for await (const page of client.projects(signal)) visible.push(...page);
      return { found: visible.length, ...(visible.length === 0 && NO_PROJECTS) };
    });
  }
  const chosen = chosenProjects(visible, projectIds);
  const listed = steps.every(({ ok }) => ok);
  if (listed) for (const missing of chosen.missing) steps.push(missingProject(missing));
  const tried = chosen.projects.slice(0, TRIED_PROJECTS);
  await pMap(
    tried,
    async (project) => {
      const name = toSingleLine(project.name);
      await attempt("variableGroups", name, () => rights((options) => client.variableGroups(project.id, options)));
      await attempt("serviceConnections", name, () => rights((options) => client.connections(project.id, options)));
    },
    { concurrency: AT_ONCE },
  );

  /**
   * Describes the number of items in a list. DevOps omits items for which the identity has no role, so an empty list is
   * ambiguous.
   */
  async function rights(list: (options: ListOptions) => AsyncGenerator<unknown[]>): Promise<Partial<DevopsTestStep>> {
    const found = await count(list({ signal, unreadable: () => {} }));
    const changeable = await count(list({ signal, manageable: true, unreadable: () => {} }));
    if (found === 0) {
      return { found, changeable, detail: "There are none, or the identity has no role on any.", remedy: ROLES };
    }
    const some = `The identity may change ${changeable} of ${found}: the others are found but not rotated.`;
    return { found, changeable, ...(changeable < found && { detail: some, remedy: ROLES }) };
  }

  const order = tried.map(({ name }) => toSingleLine(name));
  const sorted = [
    ...steps.filter(({ project }) => project === null || !order.includes(project)),
    ...order.flatMap((name) => steps.filter(({ project }) => project === name)),
  ];
  const projectsNotTested = chosen.projects.length - tried.length;
  const ok = steps.every((one) => one.ok);
  return { orgUrl, ok, testedAt: now.toISOString(), identity, steps: sorted, projectsNotTested };
}

const ROLES =
  "If a permission is missing, give the service's identity the role Reader, or Administrator for rotation, in the library and service connections of the project.";

const NO_PROJECTS = {
  ok: false,
  code: "notFound",
  detail: "The identity is a user of the organization and sees no project.",
  remedy: "Add the service's identity to a group such as Readers in each project to scan.",
};

const missingProject = (project: string): DevopsTestStep => ({
  step: "project",
  project,
  ok: false,
  found: null,
  changeable: null,
  code: "notFound",
  detail: "The identity sees no such project.",
  remedy: "Correct projectIds, or add the service's identity to a group such as Readers in that project.",
});

async function count(pages: AsyncGenerator<unknown[]>): Promise<number> {
  let found = 0;
  for await (const page of pages) found += page.length;
  return found;
}

/** Returns the projects that `projectIds` names by id or name, or all if it is empty, and the ids without a project. */
export function chosenProjects(visible: readonly Project[], projectIds: readonly string[]) {
  const same = (wanted: string, { id, name }: Project) =>
    [id, name].some((one) => one.toLowerCase() === wanted.toLowerCase());
  return {
    projects: visible.filter((project) => projectIds.length === 0 || projectIds.some((one) => same(one, project))),
    missing: projectIds.filter((one) => !visible.some((project) => same(one, project))),
  };
}
