# $<LINK_LIBRARY:WARPFUSE_NEEDED,lib> links lib although no symbol of it is used.
set(CMAKE_LINK_LIBRARY_USING_WARPFUSE_NEEDED
    "LINKER:--push-state,--no-as-needed" "<LINK_ITEM>" "LINKER:--pop-state")
set(CMAKE_LINK_LIBRARY_USING_WARPFUSE_NEEDED_SUPPORTED TRUE)
