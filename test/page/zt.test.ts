import "./tasks-lists.ts";
