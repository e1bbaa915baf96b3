import { Button, Link, Subtitle1, Text } from "@fluentui/react-components";
import { Component, type ReactNode } from "react";
import { type Operation, usePerson, useRoleMay, whoMay } from "../api/access.ts";
import { createHref } from "../parts/address.ts";
import { useStyles } from "./styles.ts";

/** Holds a view that could not be loaded or drawn: the navigation and the other views go on. */
export class ViewBoundary extends Component<{ children: ReactNode }, { error?: unknown }> {
  override state: { error?: unknown } = {};
  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }
  override render(): ReactNode {
    return "error" in this.state ? <ViewFailed error={this.state.error} /> : this.props.children;
  }
}

function ViewFailed({ error }: { error: unknown }) {
  const styles = useStyles();
  return (
    <div role="alert" className={styles.notice}>
      <Subtitle1 as="h1">This view could not be shown</Subtitle1>
      <Text>{error instanceof Error ? error.message : "It failed for an unknown reason."}</Text>
      <Button appearance="primary" onClick={() => location.reload()}>
        Load the page again
      </Button>
    </div>
  );
}

export function NoSuchView() {
  const styles = useStyles();
  return (
    <div className={styles.notice}>
      <Subtitle1 as="h1">There is no such view</Subtitle1>
      <Link href={createHref("/")}>To the overview</Link>
    </div>
  );
}

/** A view for those roles that may call what it needs. To another, who got its address from somebody, it says whom it is for. */
export function ForRoles({ needs, children }: { needs: Operation; children: ReactNode }) {
  const styles = useStyles();
  const { role } = usePerson();
  const roleMay = useRoleMay();
  if (roleMay(needs)) return children;
  return (
    <div className={styles.notice}>
      <Subtitle1 as="h1">This view is not for your role</Subtitle1>
      <Text>
        Your role is {role}; this is for {whoMay(needs).roles.join(" and ")}.
      </Text>
      <Link href={createHref("/")}>To the overview</Link>
    </div>
  );
}
