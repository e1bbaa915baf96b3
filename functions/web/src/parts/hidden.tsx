import { makeStyles } from "@fluentui/react-components";
import type { ReactNode } from "react";

const useStyles = makeStyles({
  hidden: {
    position: "absolute",
    width: "1px",
    height: "1px",
    overflow: "hidden",
    clipPath: "inset(50%)",
    whiteSpace: "nowrap",
  },
});

/** Text for screen readers only. */
export const Hidden = ({ children }: { children: ReactNode }) => <span className={useStyles().hidden}>{children}</span>;
