import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { CheckField } from "../../parts/fields.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, PagedTable } from "../../parts/paged-table.tsx";

/**
 * The projects that the service's identity can read, and the selection of those to search for consumers. No selected project
 * means all projects.
 */
export function Projects({ settings: { projectIds, etag } }: { settings: Schemas["DevopsSettings"] }) {
  const query = { limit: 100 };
  const list = api.useInfiniteQuery(
    "get",
    "/api/settings/integrations/devops/projects",
    { params: { query } },
    BY_CURSOR,
  );
  const projects = list.data?.pages.flatMap(({ items }) => items) ?? [];
  return (
    <>
      <Text weight="semibold">
        {projectIds.length === 0
          ? "Consumers are searched in all projects"
          : "Consumers are searched in the selected projects"}
      </Text>
      <PagedTable
        of={list}
        columns={[
          { title: "Project", cell: ({ name }) => name },
          { title: "Searched for consumers", cell: ({ selected }) => (selected ? "Yes" : "No") },
        ]}
        keyOf={({ id }) => id}
        label="Projects"
        empty="The service's identity can read no project. Add the identity to a project in Azure DevOps."
      />
      <div>
        <Operate
          operation="putDevopsProjects"
          title="Select projects"
          action="Save projects"
          submit={(form, put) =>
            put({
              params: { header: { "If-Match": etag } },
              body: { projectIds: form.has("all") ? [] : form.getAll("project").map(String) },
            })
          }
        >
          <CheckField name="all" label="All projects, including future ones" defaultChecked={projectIds.length === 0} />
          {projects.map(({ id, name, selected }) => (
            <CheckField
              key={id}
              name="project"
              value={id}
              label={name}
              defaultChecked={selected && projectIds.length > 0}
            />
          ))}
        </Operate>
      </div>
    </>
  );
}
